package org.apache.zookeeper.test;

import barnabas.ZooKeeperProcess;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.zookeeper.PortAssignment;
import org.apache.zookeeper.TestableZooKeeper;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.Watcher.Event.KeeperState;
import org.apache.zookeeper.ZKTestCase;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.client.ZKClientConfig;
import org.apache.zookeeper.server.ServerCnxnFactory;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The base of ZooKeeper's own tests, in place of the class of their jar: each test gets the server under test, with an
 * empty tree. System properties that Apache's server reads become settings of this one. `serverFactory` stays null,
 * because this server has no Java objects to look into.
 */
public abstract class ClientBase extends ZKTestCase {
    protected static final Logger LOG = LoggerFactory.getLogger(ClientBase.class);
    public static int CONNECTION_TIMEOUT = 30000;
    private static final int TICK_MS = 3000;
    private static final String PREFIX = "zookeeper.";
    /** What only a Java server can have: classes of its own, TLS. */
    private static final List<String> JAVA_ONLY = List.of("authProvider.", "ssl.", "serverCnxnFactory");
    private static final List<String> BARE = List.of("jute.maxbuffer", "readonlymode.enabled");

    protected String hostPort = "127.0.0.1:" + PortAssignment.unique();
    protected int maxCnxns = 0;
    protected ServerCnxnFactory serverFactory = null;
    protected File tmpDir = null;
    protected boolean exceptionOnFailedConnect = false;
    private ZooKeeperProcess server;
    private List<ZooKeeper> clients;

    /** A watcher that tells when its client is connected. */
    public static class CountdownWatcher implements Watcher {
        volatile CountDownLatch clientConnected = new CountDownLatch(1);
        volatile boolean connected;
        volatile boolean syncConnected;

        public synchronized void reset() {
            clientConnected = new CountDownLatch(1);
            connected = false;
            syncConnected = false;
        }

        @Override
        public synchronized void process(WatchedEvent event) {
            KeeperState state = event.getState();
            syncConnected = state == KeeperState.SyncConnected;
            connected = syncConnected || state == KeeperState.ConnectedReadOnly;
            if (connected) {
                clientConnected.countDown();
            }
            notifyAll();
        }

        public synchronized boolean isConnected() {
            return connected;
        }

        public synchronized void waitForConnected(long timeout) throws InterruptedException, TimeoutException {
            await(timeout, () -> connected, "Failed to connect to ZooKeeper server.");
        }

        public synchronized void waitForSyncConnected(long timeout) throws InterruptedException, TimeoutException {
            await(timeout, () -> syncConnected, "Failed to connect to read-write ZooKeeper server.");
        }

        public synchronized void waitForDisconnected(long timeout) throws InterruptedException, TimeoutException {
            await(timeout, () -> !connected, "Did not disconnect");
        }

        private void await(long timeout, java.util.function.BooleanSupplier done, String otherwise)
            throws InterruptedException, TimeoutException {
            long deadline = System.currentTimeMillis() + timeout;
            while (!done.getAsBoolean()) {
                long left = deadline - System.currentTimeMillis();
                if (left <= 0) {
                    throw new TimeoutException(otherwise);
                }
                wait(left);
            }
        }
    }

    /** An address of a connect string. */
    public static class HostPort {
        String host;
        int port;

        public HostPort(String host, int port) {
            this.host = host;
            this.port = port;
        }
    }

    public static List<HostPort> parseHostPortList(String text) {
        List<HostPort> found = new ArrayList<>();
        for (String address : text.split(",")) {
            int colon = address.lastIndexOf(':');
            found.add(new HostPort(address.substring(0, colon), portOf(address)));
        }
        return found;
    }

    private static int portOf(String address) {
        String port = address.substring(address.lastIndexOf(':') + 1);
        int slash = port.indexOf('/');
        return Integer.parseInt(slash < 0 ? port : port.substring(0, slash));
    }

    protected TestableZooKeeper createClient() throws IOException, InterruptedException {
        return createClient(hostPort);
    }

    protected TestableZooKeeper createClient(String address) throws IOException, InterruptedException {
        return createClient(new CountdownWatcher(), address);
    }

    protected TestableZooKeeper createClient(CountdownWatcher watcher) throws IOException, InterruptedException {
        return createClient(watcher, hostPort);
    }

    protected TestableZooKeeper createClient(CountdownWatcher watcher, String address)
        throws IOException, InterruptedException {
        return createClient(watcher, address, CONNECTION_TIMEOUT);
    }

    protected TestableZooKeeper createClient(CountdownWatcher watcher, String address, int timeout)
        throws IOException, InterruptedException {
        watcher.reset();
        TestableZooKeeper client = new TestableZooKeeper(address, timeout, watcher);
        if (!watcher.clientConnected.await(timeout, TimeUnit.MILLISECONDS)) {
            if (exceptionOnFailedConnect) {
                throw new java.net.ProtocolException("Unable to connect to server");
            }
            org.junit.jupiter.api.Assertions.fail("Unable to connect to server");
        }
        synchronized (this) {
            if (clients == null) {
                org.junit.jupiter.api.Assertions.fail("allClients never setup");
            }
            clients.add(client);
        }
        return client;
    }

    public static boolean waitForServerUp(String address, long timeout) {
        return waitForServerUp(address, timeout, false);
    }

    public static boolean waitForServerUp(String address, long timeout, boolean secure) {
        return waitFor(address, timeout, true);
    }

    public static boolean waitForServerDown(String address, long timeout) {
        return waitForServerDown(address, timeout, false);
    }

    public static boolean waitForServerDown(String address, long timeout, boolean secure) {
        return waitFor(address, timeout, false);
    }

    private static boolean waitFor(String address, long timeout, boolean up) {
        long deadline = System.currentTimeMillis() + timeout;
        int port = portOf(address.split(",")[0]);
        while (System.currentTimeMillis() < deadline) {
            if (ZooKeeperProcess.answer("stat", port).startsWith("Zookeeper version:") == up) {
                return true;
            }
            try {
                Thread.sleep(20);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }
        return false;
    }

    public static File createEmptyTestDir() throws IOException {
        return createTmpDir(null, false);
    }

    public static File createTmpDir() throws IOException {
        return createTmpDir(null, true);
    }

    static File createTmpDir(File parent, boolean withInitializeFile) throws IOException {
        File directory = parent == null
            ? Files.createTempDirectory("zookeeper-test").toFile()
            : Files.createTempDirectory(parent.toPath(), "test").toFile();
        if (withInitializeFile) {
            createInitializeFile(directory);
        }
        return directory;
    }

    public static void createInitializeFile(File directory) throws IOException {
        new File(directory, "initialize").createNewFile();
    }

    public static void setupTestEnv() {
        System.setProperty("zookeeper.4lw.commands.whitelist", "*");
        System.setProperty("zookeeper.admin.enableServer", "false");
    }

    protected void setUpAll() throws Exception {
        clients = new ArrayList<>();
    }

    @BeforeEach
    public void setUp() throws Exception {
        setUpWithServerId(1);
    }

    protected void setUpWithServerId(int id) throws Exception {
        setupTestEnv();
        setupCustomizedEnv();
        setUpAll();
        tmpDir = createTmpDir(null, true);
        startServer();
    }

    protected void startServer() throws Exception {
        Map<String, String> settings = new HashMap<>();
        for (String name : System.getProperties().stringPropertyNames()) {
            if (JAVA_ONLY.stream().anyMatch(each -> name.startsWith(PREFIX + each))) {
                continue;
            }
            if (name.startsWith(PREFIX)) {
                settings.put(name.substring(PREFIX.length()), System.getProperty(name));
            } else if (BARE.contains(name)) {
                settings.put(name, System.getProperty(name));
            }
        }
        settings.put("maxClientCnxns", "" + Math.max(maxCnxns, 0));
        server = new ZooKeeperProcess(portOf(hostPort), tmpDir, TICK_MS, settings);
        server.start();
    }

    protected void stopServer() throws Exception {
        if (server != null) {
            server.stop();
            server = null;
        }
    }

    public void setupCustomizedEnv() {}

    public void cleanUpCustomizedEnv() {}

    protected void tearDownAll() throws Exception {
        synchronized (this) {
            if (clients != null) {
                for (ZooKeeper client : clients) {
                    try {
                        client.close();
                    } catch (InterruptedException e) {
                        LOG.warn("client is not closed", e);
                    }
                }
            }
            clients = null;
        }
    }

    @AfterEach
    public void tearDown() throws Exception {
        tearDownAll();
        stopServer();
        if (tmpDir != null) {
            recursiveDelete(tmpDir);
        }
        hostPort = null;
        cleanUpCustomizedEnv();
    }

    static void verifyThreadTerminated(Thread thread, long millis) throws InterruptedException {
        thread.join(millis);
        if (thread.isAlive()) {
            org.junit.jupiter.api.Assertions.fail("thread " + thread.getName() + " still alive after join");
        }
    }

    protected static String getHexSessionId(long sessionId) {
        return "0x" + Long.toHexString(sessionId);
    }

    public static boolean recursiveDelete(File file) {
        File[] children = file.listFiles();
        if (children != null) {
            for (File child : children) {
                recursiveDelete(child);
            }
        }
        return file.delete();
    }

    public static void logAllStackTraces() {
        Thread.getAllStackTraces().keySet().forEach(thread -> LOG.error("thread {}", thread.getName()));
    }

    public static ZooKeeper createZKClient(String address) throws Exception {
        return createZKClient(address, CONNECTION_TIMEOUT);
    }

    public static ZooKeeper createZKClient(String address, int sessionTimeout) throws IOException {
        return createZKClient(address, sessionTimeout, CONNECTION_TIMEOUT);
    }

    public static ZooKeeper createZKClient(String address, int sessionTimeout, long connectionTimeout)
        throws IOException {
        return createZKClient(address, sessionTimeout, connectionTimeout, new ZKClientConfig());
    }

    public static ZooKeeper createZKClient(
        String address, int sessionTimeout, long connectionTimeout, ZKClientConfig config) throws IOException {
        CountdownWatcher watcher = new CountdownWatcher();
        ZooKeeper client = new ZooKeeper(address, sessionTimeout, watcher, config);
        try {
            watcher.waitForConnected(connectionTimeout);
        } catch (InterruptedException | TimeoutException e) {
            org.junit.jupiter.api.Assertions.fail("ZooKeeper client can not connect to " + address);
        }
        return client;
    }
}
