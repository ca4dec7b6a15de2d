import java.io.ByteArrayInputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Properties;

/** Reads property texts from standard input, each with its length before it, and says what java.util.Properties makes of them. */
public class Probe {
    public static void main(String[] args) throws Exception {
        DataInputStream in = new DataInputStream(System.in);
        DataOutputStream out = new DataOutputStream(System.out);
        while (true) {
            byte[] text;
            try {
                text = new byte[in.readInt()];
            } catch (EOFException end) {
                return;
            }
            in.readFully(text);
            Properties found = new Properties();
            try {
                found.load(new ByteArrayInputStream(text));
                out.writeInt(found.size());
                for (Map.Entry<Object, Object> entry : found.entrySet()) {
                    say(out, (String) entry.getKey());
                    say(out, (String) entry.getValue());
                }
            } catch (IllegalArgumentException malformed) {
                out.writeInt(-1);
            }
            out.flush();
        }
    }

    private static void say(DataOutputStream out, String text) throws Exception {
        byte[] data = text.getBytes(StandardCharsets.UTF_16BE);
        out.writeInt(data.length);
        out.write(data);
    }
}
