import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.List;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.security.kerberos.KerberosName;
import org.apache.kafka.common.security.kerberos.KerberosShortNamer;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/** Writes a line for each line read: the name behind a DER encoded one, or what mapping rules make of a name. */
public class Names {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        StringBuilder out = new StringBuilder();
        for (String line; (line = in.readLine()) != null; ) {
            String[] parts = line.split(" ", -1);
            String result;
            try {
                if (parts[0].equals("name")) {
                    result = new X500Principal(HexFormat.of().parseHex(parts[1])).getName();
                } else if (parts[0].equals("local")) {
                    List<String> rules = List.of(text(parts[1]).split(",", -1));
                    result = KerberosShortNamer.fromUnparsedRules("REALM", rules)
                            .shortName(KerberosName.parse(text(parts[2])));
                } else {
                    result = SslPrincipalMapper.fromRules(text(parts[1])).getName(text(parts[2]));
                }
                result = "ok " + HexFormat.of().formatHex(result.getBytes(StandardCharsets.UTF_8));
            } catch (Exception error) {
                result = "refused";
            }
            out.append(result).append('\n');
        }
        System.out.print(out);
    }

    private static String text(String hex) {
        return new String(HexFormat.of().parseHex(hex), StandardCharsets.UTF_8);
    }
}
