import java.util.Collections;
import java.util.List;
import kafka.consumer.BaseConsumerRecord;
import kafka.tools.MirrorMaker;
import org.apache.kafka.clients.producer.ProducerRecord;

/** The Java MirrorMaker's message handler of workload H: keeps everything but writes the value in upper case. */
public class UpperCase implements MirrorMaker.MirrorMakerMessageHandler {
    @Override
    public List<ProducerRecord<byte[], byte[]>> handle(BaseConsumerRecord record) {
        byte[] value = record.value();
        byte[] upper = new byte[value.length];
        for (int i = 0; i < value.length; i++) {
            byte b = value[i];
            upper[i] = b >= 'a' && b <= 'z' ? (byte) (b - 32) : b;
        }
        return Collections.singletonList(new ProducerRecord<>(
            record.topic(), null, record.timestamp(), record.key(), upper, record.headers()));
    }
}
