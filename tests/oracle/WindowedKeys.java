import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.streams.kstream.SessionWindowedSerializer;
import org.apache.kafka.streams.kstream.TimeWindowedSerializer;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.kstream.internals.TimeWindow;

/** Prints keys of windows as Kafka Streams writes them, one JSON object a line; recorded by record.py. */
public final class WindowedKeys {
    private static final List<String> KEYS = List.of("", "00", "61", "6a666b", "ff00fe", "61206b6579206f66206d6f7265207468616e207369787465656e206279746573");
    private static final long[][] SPANS = {
        {0, 1}, {0, 10}, {10, 20}, {255, 256}, {256, 65536}, {1357034400000L, 1357038000000L},
        {1L << 53, (1L << 53) + 3600000}, {Long.MAX_VALUE - 1, Long.MAX_VALUE},
    };

    public static void main(String[] arguments) {
        try (var times = new TimeWindowedSerializer<>(new ByteArraySerializer());
             var sessions = new SessionWindowedSerializer<>(new ByteArraySerializer())) {
            for (String key : KEYS) {
                byte[] plain = HexFormat.of().parseHex(key);
                for (long[] span : SPANS) {
                    print("time", key, span, times.serialize("t", new Windowed<>(plain, new TimeWindow(span[0], span[1]))));
                    print("session", key, span, sessions.serialize("t", new Windowed<>(plain, new SessionWindow(span[0], span[1]))));
                }
                long[] point = {42, 42};
                print("session", key, point, sessions.serialize("t", new Windowed<>(plain, new SessionWindow(42, 42))));
            }
        }
    }

    private static void print(String windows, String key, long[] span, byte[] written) {
        System.out.printf("{\"windows\": \"%s\", \"key\": \"%s\", \"start\": %d, \"end\": %d, \"bytes\": \"%s\"}%n",
            windows, key, span[0], span[1], HexFormat.of().formatHex(written));
    }
}
