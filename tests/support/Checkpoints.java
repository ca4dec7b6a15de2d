import java.time.Duration;
import java.util.Map;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;

/** Prints what Kafka's own client reads from the checkpoints on a target: address, alias, group. */
public class Checkpoints {
    public static void main(String[] args) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", args[0]);
        Map<TopicPartition, OffsetAndMetadata> found =
            RemoteClusterUtils.translateOffsets(settings, args[1], args[2], Duration.ofSeconds(30));
        found.forEach((key, value) -> System.out.println("row " + key + " " + value.offset() + " " + value.metadata()));
    }
}
