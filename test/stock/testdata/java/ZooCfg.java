import java.io.File;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.net.InetSocketAddress;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import javax.security.auth.login.AppConfigurationEntry;
import javax.security.auth.login.Configuration;

/**
 * Tells how ZooKeeper reads a zoo.cfg. Standard input has texts that end in NUL. Each text is a key, a
 * newline, and lines of a zoo.cfg. For each text the program prints the value of the key with which the
 * server works. For each text it loads the classes again, because ZooKeeper reads many keys when it loads a
 * class.
 */
public class ZooCfg {
    private static final String SERVER = "org.apache.zookeeper.server.";
    private static final String PROMETHEUS =
        "org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider";
    private static File dir;

    public static void main(String[] args) throws Exception {
        dir = Files.createTempDirectory("zoocfg").toFile();
        Files.write(new File(dir, "myid").toPath(), "1".getBytes());
        String all = new String(System.in.readAllBytes(), StandardCharsets.ISO_8859_1);
        Properties before = (Properties) System.getProperties().clone();
        List<URL> path = new ArrayList<>();
        for (String jar : System.getProperty("java.class.path").split(":")) {
            path.add(new File(jar).toURI().toURL());
        }
        for (String text : all.split("\0")) {
            int cut = text.indexOf('\n');
            System.setProperties((Properties) before.clone());
            try (URLClassLoader fresh = new URLClassLoader(path.toArray(new URL[0]),
                    ClassLoader.getPlatformClassLoader())) {
                Thread.currentThread().setContextClassLoader(fresh);
                System.out.println(read(fresh, text.substring(0, cut), text.substring(cut + 1)));
            }
        }
        System.exit(0);
    }

    private static String read(ClassLoader in, String key, String lines) throws Exception {
        File file = new File(dir, "zoo.cfg");
        String base = "dataDir=" + dir + "\n" + (lines.contains("clientPort") ? "" : "clientPort=2181\n");
        // Debian has no jar of the Prometheus provider. Its settings are read below as the provider reads them.
        String known = lines.replace(PROMETHEUS, "org.apache.zookeeper.metrics.impl.DefaultMetricsProvider");
        Files.write(file.toPath(), (base + known + "\n").getBytes(StandardCharsets.ISO_8859_1));
        Class<?> type = in.loadClass(SERVER + "quorum.QuorumPeerConfig");
        Object config = type.getDeclaredConstructor().newInstance();
        try {
            type.getMethod("parse", String.class).invoke(config, file.getPath());
            return String.valueOf(observe(in, config, key));
        } catch (IllegalArgumentException e) { // the server reads this key only after the file, and then ends
            return "refused";
        } catch (InvocationTargetException e) {
            if (e.getCause() instanceof NoClassDefFoundError) {
                throw e;
            }
            return "refused";
        }
    }

    private static Object observe(ClassLoader in, Object config, String key) throws Exception {
        switch (key) {
            case "skipACL": case "enforceQuota":
                return field(in, "ZooKeeperServer", null, key);
            case "snapCount":
                return call(in, SERVER + "ZooKeeperServer", null, "getSnapCount");
            case "snapSizeLimitInKb":
                return call(in, SERVER + "ZooKeeperServer", null, "getSnapSizeInBytes");
            case "allowSaslFailedClients":
                return call(in, SERVER + "ZooKeeperServer", null, "shouldAllowSaslFailedClientsConnect");
            case "extendedTypesEnabled":
                return call(in, SERVER + "EphemeralType", null, "extendedEphemeralTypesEnabled");
            case "audit.enable":
                return call(in, "org.apache.zookeeper.audit.ZKAuditProvider", null, "isAuditEnabled");
            case "forceSync":
                return call(in, SERVER + "persistence.FileTxnLog", in.loadClass(SERVER + "persistence.FileTxnLog")
                    .getConstructor(File.class).newInstance(dir), "isForceSync");
            case "maxCnxns": {
                Object factory = make(in, "NIOServerCnxnFactory");
                call(in, SERVER + "ServerCnxnFactory", factory, "initMaxCnxns");
                return call(in, SERVER + "ServerCnxnFactory", factory, "getMaxCnxns");
            }
            case "enforce.auth.enabled":
                return field(in, "AuthenticationHelper", make(in, "AuthenticationHelper"), "enforceAuthEnabled");
            case "enforce.auth.schemes":
                return field(in, "AuthenticationHelper", make(in, "AuthenticationHelper"), "enforceAuthSchemes");
            case "sessionRequireClientSASLAuth":
                return field(in, "AuthenticationHelper", make(in, "AuthenticationHelper"), "saslAuthRequired");
            case "4lw.commands.whitelist": {
                List<String> on = new ArrayList<>();
                Method enabled = in.loadClass(SERVER + "command.FourLetterCommands").getMethod("isEnabled",
                    String.class);
                for (String word : new String[] {"conf", "isro", "mntr", "ruok", "srvr"}) {
                    if ((boolean) enabled.invoke(null, word)) {
                        on.add(word);
                    }
                }
                return on;
            }
            case "admin.enableServer":
                return !call(in, SERVER + "admin.AdminServerFactory", null, "createAdminServer").getClass()
                    .getSimpleName().equals("DummyAdminServer");
            case "admin.serverPort": case "admin.serverAddress":
                return field(in, "admin.JettyAdminServer", make(in, "admin.JettyAdminServer"),
                    key.equals("admin.serverPort") ? "port" : "address");
            case "ssl.crl": case "ssl.ocsp": case "ssl.quorum.crl": case "ssl.quorum.ocsp": {
                Object all = in.loadClass("org.apache.zookeeper.common.ZKConfig").getConstructor().newInstance();
                return all.getClass().getMethod("getBoolean", String.class).invoke(all, "zookeeper." + key);
            }
            case "admin.forceHttps": case "admin.portUnification":
                try { // the file of the keys does not exist, and only TLS reads it
                    make(in, "admin.JettyAdminServer");
                    return false;
                } catch (InvocationTargetException e) {
                    return true;
                }
            case "admin.needClientAuth": // from ZooKeeper 3.9 on
                return Boolean.getBoolean("zookeeper." + key);
            case "kerberos.removeHostFromPrincipal": case "kerberos.removeRealmFromPrincipal": {
                Configuration none = new Configuration() {
                    @Override
                    public AppConfigurationEntry[] getAppConfigurationEntry(String name) {
                        return new AppConfigurationEntry[0];
                    }
                };
                Class<?> type = in.loadClass(SERVER + "auth.SaslServerCallbackHandler");
                Method on = type.getDeclaredMethod("isSystemPropertyTrue", String.class);
                on.setAccessible(true);
                return on.invoke(type.getConstructor(Configuration.class).newInstance(none), "zookeeper." + key);
            }
            case "ensembleAuthName": {
                Object names = field(in, "auth.EnsembleAuthenticationProvider",
                    make(in, "auth.EnsembleAuthenticationProvider"), "ensembleNames");
                return names == null ? "[]" : new TreeSet<Object>((Set<?>) names);
            }
            case "metricsProvider.exportJvmInfo":
                return Boolean.parseBoolean(metrics(in, config, "exportJvmInfo", "true"));
            case "metricsProvider.httpPort":
                return new InetSocketAddress(Integer.parseInt(metrics(in, config, "httpPort", "7000"))).getPort();
            case "ssl.protocol": case "ssl.enabledProtocols": {
                Object util = in.loadClass("org.apache.zookeeper.common.ClientX509Util").getConstructor()
                    .newInstance();
                Object options = util.getClass().getMethod("getDefaultSSLContextAndOptions").invoke(util);
                Field protocols = options.getClass().getDeclaredField("enabledProtocols");
                protocols.setAccessible(true);
                return Arrays.asList((String[]) protocols.get(options));
            }
            case "ssl.clientAuth": case "ssl.quorum.clientAuth":
                return in.loadClass("org.apache.zookeeper.common.X509Util$ClientAuth")
                    .getMethod("fromPropertyValue", String.class).invoke(null,
                        System.getProperty("zookeeper." + key));
            case "jute.maxbuffer": // the command line of a ZooKeeper sets this and the next two
                System.setProperty(key, System.getProperty("zookeeper." + key, ""));
                return in.loadClass("org.apache.jute.BinaryInputArchive").getField("maxBuffer").get(null);
            case "readonlymode.enabled":
                System.setProperty(key, System.getProperty("zookeeper." + key, ""));
                return Boolean.getBoolean(key);
            case "znode.container.checkIntervalMs":
                System.setProperty(key, System.getProperty("zookeeper." + key, ""));
                return Integer.getInteger(key, 60000);
            case "clientPort": case "secureClientPort": {
                Object address = field(in, "quorum.QuorumPeerConfig", config, key + "Address");
                return address == null ? "none" : ((InetSocketAddress) address).getPort();
            }
            case "portUnification": case "sslQuorumPortUnification": // ZooKeeper knows only the first name
                return field(in, "quorum.QuorumPeerConfig", config, "shouldUsePortUnification");
            case "autopurge.snapRetainCount":
                return field(in, "quorum.QuorumPeerConfig", config, "snapRetainCount");
            case "quorum.auth.enableSasl":
                return field(in, "quorum.QuorumPeerConfig", config, "quorumEnableSasl");
            case "superUser": case "DigestAuthenticationProvider.superDigest":
                return System.getProperty("zookeeper." + key);
            default:
                return field(in, "quorum.QuorumPeerConfig", config, key);
        }
    }

    private static String metrics(ClassLoader in, Object config, String name, String missing) throws Exception {
        Properties all = (Properties) field(in, "quorum.QuorumPeerConfig", config, "metricsProviderConfiguration");
        return all.getProperty(name, missing);
    }

    private static Object make(ClassLoader in, String type) throws Exception {
        return in.loadClass(SERVER + type).getConstructor().newInstance();
    }

    private static Object field(ClassLoader in, String type, Object of, String name) throws Exception {
        Field f = in.loadClass(SERVER + type).getDeclaredField(name);
        f.setAccessible(true);
        return f.get(of);
    }

    private static Object call(ClassLoader in, String type, Object of, String name) throws Exception {
        Method m = in.loadClass(type).getDeclaredMethod(name);
        m.setAccessible(true);
        return m.invoke(of);
    }
}
