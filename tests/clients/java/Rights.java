import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Proxy;
import java.net.InetAddress;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.PluginMetrics;
import org.apache.kafka.common.network.ClientInformation;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.requests.RequestContext;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/**
 * Answers questions with Kafka's own StandardAuthorizer. Lines of tab-separated fields on standard input:
 *
 *   begin  default (true or false)  super users
 *   rule   type  name  pattern  principal  host  operation  permission    (codes as numbers)
 *   ask    principal  host  operation  type  name
 *   any    principal  host  operation  type
 *
 * Each ask and each any is answered by a line: 1 or 0.
 */
public class Rights {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        StringBuilder out = new StringBuilder();
        StandardAuthorizer authorizer = null;
        Map<Uuid, StandardAcl> rules = new HashMap<>();
        boolean loaded = false;
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] f = line.split("\t", -1);
            if (f[0].equals("begin")) {
                authorizer = new StandardAuthorizer();
                Map<String, Object> configs = new HashMap<>();
                configs.put("allow.everyone.if.no.acl.found", f[1]);
                configs.put("super.users", f[2]);
                configs.put("node.id", "1");
                authorizer.configure(configs);
                authorizer.withPluginMetrics(metrics());
                rules.clear();
                loaded = false;
            } else if (f[0].equals("rule")) {
                rules.put(Uuid.randomUuid(), new StandardAcl(
                    ResourceType.fromCode(Byte.parseByte(f[1])), f[2], PatternType.fromCode(Byte.parseByte(f[3])),
                    f[4], f[5], AclOperation.fromCode(Byte.parseByte(f[6])),
                    AclPermissionType.fromCode(Byte.parseByte(f[7]))));
            } else {
                if (!loaded) {
                    authorizer.loadSnapshot(rules);
                    authorizer.completeInitialLoad();
                    loaded = true;
                }
                RequestContext context = context(f[1], f[2]);
                AclOperation operation = AclOperation.fromCode(Byte.parseByte(f[3]));
                ResourceType type = ResourceType.fromCode(Byte.parseByte(f[4]));
                AuthorizationResult result = f[0].equals("any")
                    ? authorizer.authorizeByResourceType(context, operation, type)
                    : authorizer.authorize(context, List.of(new Action(operation,
                        new ResourcePattern(type, f[5], PatternType.LITERAL), 1, false, false))).get(0);
                out.append(result == AuthorizationResult.ALLOWED ? "1\n" : "0\n");
            }
        }
        System.out.print(out);
        System.out.flush();
        System.exit(0);
    }

    /** Metrics that nobody reads; the authorizer does not work without them. */
    private static PluginMetrics metrics() {
        Metrics metrics = new Metrics();
        return (PluginMetrics) Proxy.newProxyInstance(Rights.class.getClassLoader(),
            new Class<?>[] {PluginMetrics.class}, (proxy, method, values) -> {
                if (method.getName().equals("metricName")) {
                    return new MetricName((String) values[0], "plugins", (String) values[1], Map.of());
                }
                return method.getName().equals("addSensor") ? metrics.sensor((String) values[0]) : null;
            });
    }

    private static RequestContext context(String principal, String host) throws Exception {
        KafkaPrincipal parsed = SecurityUtils.parseKafkaPrincipal(principal);
        return new RequestContext(new RequestHeader(ApiKeys.FETCH, (short) 12, "c", 1), "1",
            InetAddress.getByName(host), parsed, new ListenerName("PLAINTEXT"), SecurityProtocol.PLAINTEXT,
            ClientInformation.EMPTY, false);
    }
}
