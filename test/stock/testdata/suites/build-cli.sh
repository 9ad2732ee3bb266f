#!/bin/sh
# build-cli.sh SOURCE builds the C client's shell with SASL in the current
# directory. Debian's library has no SASL.
set -eu
c=$1/zookeeper-client/zookeeper-client-c
java -cp /usr/share/java/zookeeper-jute.jar org.apache.jute.compiler.generated.Rcc -l c "$1/zookeeper-jute/src/main/resources/zookeeper.jute"
sed -n 's/#cmakedefine/#define/p' "$c/cmake_config.h.in" | grep -v 'SASL\|OPENSSL\|VERSION\|PACKAGE' >config.h
echo '#define PACKAGE_STRING "Debian source"' >>config.h
src=$c/src
gcc -w -O1 -D_GNU_SOURCE -DHAVE_CONFIG_H -DTHREADED -DUSE_STATIC_LIB -DHAVE_CYRUS_SASL_H -DPOLL_NFDS_TYPE=nfds_t -I. -I"$c/include" -I"$src" -I"$src/hashtable" -o cli \
	zookeeper.jute.c "$src/zookeeper.c" "$src/recordio.c" "$src/mt_adaptor.c" "$src/zk_log.c" "$src/zk_hashtable.c" "$src/addrvec.c" \
	"$src/zk_sasl.c" "$src/hashtable/hashtable.c" "$src/hashtable/hashtable_itr.c" "$src/cli.c" -lsasl2 -lpthread -lm
