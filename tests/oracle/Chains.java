import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.StringJoiner;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.WindowedSerdes;
import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;

/**
 * Prints random histories and what Kafka Streams' chains of counts, suppressions and filters make of them, one JSON
 * object a line; recorded by record.py.
 *
 * Among equal times the order is that of arrival, where Kafka Streams has the order of the keys' bytes. Times in
 * sessions are even, and gap + grace is odd: in Kafka Streams a session closes one instant earlier than it stops to
 * take records, so that it can have two final results.
 */
public final class Chains {
    private static final int SCENARIOS = 240;
    private static final String[] SHAPES = {"tumbling", "hopping", "session", "none"};
    private static final String[] KEYS = {"a", "b", "c"};

    private record Input(String key, String value, long timestamp) {}

    private record Emission(int cause, Slot slot, String row) {}

    /** A place in the buffer of a suppression: when it is due, and which slot among those of equal times. */
    private record Slot(long due, int arrival) {}

    private final Random random;
    private final String shape;
    private final boolean closes;
    private final StringJoiner steps = new StringJoiner(", ", "[", "]");
    private final Map<Object, Slot> held = new HashMap<>();
    private final Map<Object, Slot> released = new HashMap<>();
    private final List<Emission> output = new ArrayList<>();
    private int arrivals;
    private int at;

    private Chains(int number) {
        random = new Random(number);
        shape = SHAPES[number % SHAPES.length];
        closes = shape.equals("session") || (!shape.equals("none") && random.nextInt(3) > 0);
    }

    public static void main(String[] arguments) {
        for (int number = 0; number < SCENARIOS; number++) {
            new Chains(number).print(number);
        }
    }

    private void print(int number) {
        var history = history();
        var builder = new StreamsBuilder();
        build(builder);
        var settings = new Properties();
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put(StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG, BuiltInDslStoreSuppliers.InMemoryDslStoreSuppliers.class);
        try (var driver = new TopologyTestDriver(builder.build(), settings)) {
            var topic = driver.createInputTopic("in", new StringSerializer(), new StringSerializer());
            for (at = 0; at < history.size(); at++) {
                var input = history.get(at);
                topic.pipeInput(input.key, input.value, input.timestamp);
            }
        }
        output.sort((one, other) -> one.cause != other.cause ? one.cause - other.cause
            : one.slot.due != other.slot.due ? 0 : one.slot.arrival - other.slot.arrival);
        var inputs = new StringJoiner(", ", "[", "]");
        history.forEach(input -> inputs.add("{\"key\": %s, \"value\": %s, \"timestamp\": %d}"
            .formatted(text(input.key), text(input.value), input.timestamp)));
        var rows = new StringJoiner(", ", "[", "]");
        output.forEach(emission -> rows.add(emission.row));
        System.out.printf("{\"id\": \"chain-%03d\", \"operator\": \"chain\", \"config\": {\"steps\": %s}, \"input\": %s, "
            + "\"expected\": {\"output\": %s}}%n", number, steps, inputs, rows);
    }

    private List<Input> history() {
        var found = new ArrayList<Input>();
        long now = random.nextInt(10);
        for (int i = 0; i < 30; i++) {
            now += random.nextInt(8) == 0 ? 30 : random.nextInt(5);
            long time = Math.max(0, now - (random.nextInt(3) == 0 ? random.nextInt(16) : 0));
            String key = random.nextInt(15) == 0 ? null : KEYS[random.nextInt(KEYS.length)];
            String value = !shape.equals("none") && random.nextInt(15) == 0 ? null : "v" + i;
            found.add(new Input(key, value, shape.equals("session") ? time & ~1L : time));
        }
        return found;
    }

    private void build(StreamsBuilder builder) {
        KStream<String, String> stream = builder.stream("in");
        if (random.nextInt(3) == 0) {
            String dropped = KEYS[random.nextInt(KEYS.length)];
            step("{\"filter\": \"key <> '%s'\"}", dropped);
            stream = stream.filter((key, value) -> key != null && !key.equals(dropped));
        }
        KGroupedStream<String, String> grouped = stream.groupByKey();
        Duration grace = Duration.ofMillis(2 * random.nextInt(6));
        int size = 4 + random.nextInt(8);
        switch (shape) {
            case "tumbling" -> {
                step("{\"count\": {\"window\": \"tumbling\", \"size_ms\": %d, \"grace_ms\": %d}}", size, grace.toMillis());
                rest(grouped.windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMillis(size), grace)).count(), times(size));
            }
            case "hopping" -> {
                int advance = 1 + random.nextInt(size);
                step("{\"count\": {\"window\": \"hopping\", \"size_ms\": %d, \"advance_ms\": %d, \"grace_ms\": %d}}",
                    size, advance, grace.toMillis());
                var windows = TimeWindows.ofSizeAndGrace(Duration.ofMillis(size), grace).advanceBy(Duration.ofMillis(advance));
                rest(grouped.windowedBy(windows).count(), times(size));
            }
            case "session" -> {
                int gap = 1 + 2 * random.nextInt(4);
                step("{\"count\": {\"window\": \"session\", \"gap_ms\": %d, \"grace_ms\": %d}}", gap, grace.toMillis());
                var windows = SessionWindows.ofInactivityGapAndGrace(Duration.ofMillis(gap), grace);
                rest(grouped.windowedBy(windows).count(), new WindowedSerdes.SessionWindowedSerde<>(Serdes.String()));
            }
            default -> {
                step("{\"count\": {}}");
                rest(grouped.count(), Serdes.String());
            }
        }
    }

    private static Serde<Windowed<String>> times(int size) {
        return new WindowedSerdes.TimeWindowedSerde<>(Serdes.String(), size);
    }

    /** Add what follows the counts: perhaps a filter, a suppression, perhaps a filter. */
    private <K> void rest(KTable<K, Long> counts, Serde<K> keys) {
        var passed = filter(counts.toStream(), random.nextInt(3) == 0).<Long>processValues(() -> new Held<K>());
        var table = suppress(passed.toTable(Materialized.with(keys, Serdes.Long())));
        filter(table.toStream().<Long>processValues(() -> new Released<K>()), random.nextInt(4) > 0)
            .<Long>processValues(() -> new Result<K>());
    }

    private <K> KStream<K, Long> filter(KStream<K, Long> stream, boolean wanted) {
        if (!wanted) {
            return stream;
        }
        int bound = 2 + random.nextInt(2);
        boolean less = random.nextBoolean();
        step(less ? "{\"filter\": \"count < %d\"}" : "{\"filter\": \"count >= %d\"}", bound);
        return stream.filter((key, count) -> count != null && less == count < bound);
    }

    @SuppressWarnings("unchecked")
    private <K> KTable<K, Long> suppress(KTable<K, Long> table) {
        var unbounded = Suppressed.BufferConfig.unbounded();
        if (closes) {
            step("{\"suppress\": {\"until\": \"window_close\"}}");
            return table.suppress((Suppressed<K>) (Suppressed<?>) Suppressed.untilWindowCloses(unbounded));
        }
        int limit = random.nextInt(12);
        step("{\"suppress\": {\"time_limit_ms\": %d}}", limit);
        return table.suppress(Suppressed.untilTimeLimit(Duration.ofMillis(limit), unbounded));
    }

    /** Notes which slots the suppression behind it holds. */
    private final class Held<K> extends ContextualFixedKeyProcessor<K, Long, Long> {
        @Override
        public void process(FixedKeyRecord<K, Long> change) {
            held.putIfAbsent(change.key(), new Slot(closes ? end(change.key()) : change.timestamp(), arrivals++));
            context().forward(change);
        }
    }

    /** Notes which slot the suppression before it released. */
    private final class Released<K> extends ContextualFixedKeyProcessor<K, Long, Long> {
        @Override
        public void process(FixedKeyRecord<K, Long> result) {
            released.put(result.key(), held.remove(result.key()));
            context().forward(result);
        }
    }

    private final class Result<K> extends ContextualFixedKeyProcessor<K, Long, Long> {
        @Override
        public void process(FixedKeyRecord<K, Long> result) {
            output.add(new Emission(at, released.get(result.key()), row(result.key(), result.value(), result.timestamp())));
        }
    }

    private String row(Object key, Long value, long timestamp) {
        var row = key instanceof Windowed<?> windowed
            ? "\"key\": %s, \"window_start\": %d, \"window_end\": %d".formatted(text(windowed.key()), windowed.window().start(), windowed.window().end())
            : "\"key\": %s".formatted(text(key));
        return "{\"after_offset\": %d, %s, \"value\": %s, \"timestamp\": %d}".formatted(at, row, value, timestamp);
    }

    private static long end(Object key) {
        return ((Windowed<?>) key).window().end();
    }

    private void step(String form, Object... values) {
        steps.add(form.formatted(values));
    }

    private static String text(Object value) {
        return value == null ? "null" : "\"" + value + "\"";
    }
}
