/** Runs Curator 5, as Debian ships it. With arguments "contend …" it is one contending process. */
public final class CuratorDriver {
    public static void main(String[] args) throws Exception {
        if (args.length > 0 && args[0].equals("contend")) {
            Contender.main(args);
            System.exit(0);
        }
        CuratorBasics.prepareSweeps();
        CuratorLocks.register();
        CuratorCaches.register();
        CuratorNodes.register();
        CuratorBasics.register();
        Checks.runAll(args);
        System.exit(0);
    }
}
