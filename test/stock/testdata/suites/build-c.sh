#!/bin/sh
# build-c.sh SOURCE SERVER builds the C client with SASL and TLS in the current
# directory, and those of its own tests that need no mocks. The tests start servers
# with the command SERVER. The script also makes the certificates that they need.
set -eu
c=$1/zookeeper-client/zookeeper-client-c
java -cp /usr/share/java/zookeeper-jute.jar org.apache.jute.compiler.generated.Rcc -l c "$1/zookeeper-jute/src/main/resources/zookeeper.jute"
sed -n 's/#cmakedefine/#define/p' "$c/cmake_config.h.in" | grep -v 'SASL\|OPENSSL\|VERSION\|PACKAGE' >config.h
echo '#define PACKAGE_STRING "Debian source"' >>config.h
# OpenSSL 3 has no FIPS_mode any more.
flags="-w -DFIPS_mode()=0 -O1 -D_GNU_SOURCE -DHAVE_CONFIG_H -DTHREADED -DUSE_STATIC_LIB -DHAVE_CYRUS_SASL_H -DHAVE_OPENSSL_H -DZOO_IPV6_ENABLED -DPOLL_NFDS_TYPE=nfds_t \
-I. -I$c/include -I$c/src -I$c/src/hashtable -I$c/tests"
src=$c/src
# shellcheck disable=SC2086 # flags are words
gcc $flags -c zookeeper.jute.c "$src/zookeeper.c" "$src/recordio.c" "$src/mt_adaptor.c" "$src/zk_log.c" "$src/zk_hashtable.c" "$src/addrvec.c" \
	"$src/zk_sasl.c" "$src/hashtable/hashtable.c" "$src/hashtable/hashtable_itr.c"
mkdir certs
for who in server client; do # each signs its own certificate
	openssl req -x509 -newkey rsa:2048 -nodes -days 10 -subj /CN=localhost -addext subjectAltName=DNS:localhost -keyout certs/${who}key.pem -out certs/$who.crt 2>/dev/null
done
sed "s#/tmp/certs#$PWD/certs#g" "$c/tests/TestReadOnlyClient.cc" >TestReadOnlyClient.cc
cd "$c/tests"
# shellcheck disable=SC2086
g++ $flags -I"$OLDPWD" -include time.h -include poll.h -DZKSERVER_CMD="\"$2\"" -o "$OLDPWD/tests" \
	TestDriver.cc Util.cc ThreadingUtil.cc LibCSymTable.cc ZooKeeperQuorumServer.cc TestReconfigServer.cc "$OLDPWD/TestReadOnlyClient.cc" TestSASLAuth.cc \
	"$OLDPWD"/*.o -lcppunit -lsasl2 -lssl -lcrypto -lpthread -ldl
