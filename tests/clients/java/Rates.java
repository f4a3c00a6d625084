import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import kafka.server.ControllerMutationQuotaManager;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.metrics.MeasurableStat;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.QuotaViolationException;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.TokenBucket;
import org.apache.kafka.server.quota.QuotaUtils;

/**
 * Records values with the classes of Kafka's quotas. "rate" or "tokens" with samples, window and bound begins anew;
 * each other line is a time and a value, and is answered by the throttle time and the value measured after it.
 */
public class Rates {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        StringBuilder out = new StringBuilder();
        Metrics metrics = new Metrics();
        Sensor sensor = null;
        MetricConfig config = null;
        MeasurableStat stat = null;
        boolean isRate = false;
        int count = 0;
        for (String line; (line = in.readLine()) != null; ) {
            String[] parts = line.split(" ");
            if (parts.length == 4) {
                isRate = parts[0].equals("rate");
                config = new MetricConfig()
                        .samples(Integer.parseInt(parts[1]))
                        .timeWindow(Long.parseLong(parts[2]), TimeUnit.MILLISECONDS)
                        .quota(Quota.upperBound(Double.parseDouble(parts[3])));
                sensor = metrics.sensor("sensor" + ++count);
                stat = isRate ? new Rate() : new TokenBucket();
                sensor.add(new MetricName("metric" + count, "rates", "", Map.of()), stat, config);
                continue;
            }
            long time = Long.parseLong(parts[0]);
            long throttle = 0;
            sensor.record(Double.parseDouble(parts[1]), time, false);
            try {
                sensor.checkQuotas(time);
            } catch (QuotaViolationException error) {
                throttle = isRate
                        ? QuotaUtils.throttleTime(error, time)
                        : ControllerMutationQuotaManager.throttleTimeMs(error);
            }
            out.append(throttle).append(' ').append(stat.measure(config, time)).append('\n');
        }
        System.out.print(out);
    }
}
