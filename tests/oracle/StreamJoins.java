import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Properties;
import java.util.Random;
import java.util.StringJoiner;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;

/**
 * Prints random histories of two streams and what Kafka Streams' joins make of them, one JSON object a line; recorded
 * by record.py.
 *
 * Left out are records for which Kafka Streams 4.1.1 does not keep to the window and its grace: late ones, which it
 * joins and pads (KAFKA-16123); out-of-order ones that it pads before their window closes (KAFKA-19536); and those that
 * it joins with a record whose window has closed before it found a partner (KAFKA-15417). Results without a partner
 * stand behind the record that closes their window, where Kafka Streams may look for them a few records later, and in
 * the order in which windows close, the left stream first.
 */
public final class StreamJoins {
    private static final int SCENARIOS = 150;
    private static final String[] JOINS = {"inner", "left", "outer"};
    private static final String[] KEYS = {"a", "b", "c"};

    private record Input(int id, boolean left, String key, String value, long timestamp) {
        boolean joinable() {
            return key != null && value != null;
        }
    }

    private record Pair(Input left, Input right) {
        boolean has(Input input) {
            return input.equals(left) || input.equals(right);
        }

        boolean padded() {
            return left == null || right == null;
        }

        Input only() {
            return left == null ? right : left;
        }
    }

    private record Output(int after, String key, Pair pair, long timestamp) {
        Output at(int after) {
            return new Output(after, key, pair, timestamp);
        }
    }

    private final Random random;
    private final String how;
    private final int before;
    private final int after;
    private final int grace;
    private final List<Input> inputs = new ArrayList<>();
    private final List<Output> outputs = new ArrayList<>();
    private int at;

    private StreamJoins(int number) {
        random = new Random(number);
        how = JOINS[number % JOINS.length];
        before = random.nextInt(10);
        after = random.nextInt(3) == 0 ? before : random.nextInt(10);
        grace = random.nextInt(3) == 0 ? 0 : random.nextInt(10);
    }

    public static void main(String[] arguments) {
        for (int number = 0; number < SCENARIOS; number++) {
            new StreamJoins(number).print(number);
        }
    }

    private void print(int number) {
        draw();
        do {
            play();
        } while (removed());
        outputs.sort(Comparator.comparingInt(Output::after).thenComparing(output -> !output.pair.padded()).thenComparing(
            (one, other) -> one.pair.padded() ? order(one.pair.only(), other.pair.only()) : 0));
        var rows = new StringJoiner(", ", "[", "]");
        inputs.forEach(input -> rows.add("{\"topic\": \"%s\", \"key\": %s, \"value\": %s, \"timestamp\": %d}"
            .formatted(input.left ? "left" : "right", text(input.key), text(input.value), input.timestamp)));
        var results = new StringJoiner(", ", "[", "]");
        outputs.forEach(output -> results.add("{\"after_offset\": %d, \"key\": %s, \"left\": %s, \"right\": %s, \"timestamp\": %d}"
            .formatted(output.after, text(output.key), value(output.pair.left), value(output.pair.right), output.timestamp)));
        System.out.printf("{\"id\": \"stream-join-%03d\", \"operator\": \"stream_stream_join\", \"config\": {\"join\": \"%s\", "
            + "\"before_ms\": %d, \"after_ms\": %d, \"grace_ms\": %d}, \"input\": %s, \"expected\": {\"output\": %s}}%n",
            number, how, before, after, grace, rows, results);
    }

    private void draw() {
        long now = random.nextInt(10);
        for (int id = 0; id < 50; id++) {
            now += random.nextInt(8) == 0 ? 30 : random.nextInt(5);
            long time = Math.max(0, now - (random.nextInt(2) == 0 ? random.nextInt(20) : 0));
            String key = random.nextInt(15) == 0 ? null : KEYS[random.nextInt(1 + random.nextInt(KEYS.length))];
            String value = random.nextInt(15) == 0 ? null : Integer.toString(id);
            inputs.add(new Input(id, random.nextBoolean(), key, value, time));
        }
        for (int id = 50; id < 53; id++) {
            now += 1000;
            inputs.add(new Input(id, true, "z", Integer.toString(id), now));
        }
    }

    private void play() {
        outputs.clear();
        var builder = new StreamsBuilder();
        KStream<String, String> left = builder.stream("left");
        KStream<String, String> right = builder.stream("right");
        var windows = JoinWindows.ofTimeDifferenceAndGrace(Duration.ZERO, Duration.ofMillis(grace))
            .before(Duration.ofMillis(before)).after(Duration.ofMillis(after));
        KStream<String, Pair> joined = switch (how) {
            case "inner" -> left.join(right, this::pair, windows);
            case "left" -> left.leftJoin(right, this::pair, windows);
            default -> left.outerJoin(right, this::pair, windows);
        };
        joined.process(Result::new);
        try (var driver = new TopologyTestDriver(builder.build(), settings())) {
            var lefts = driver.createInputTopic("left", new StringSerializer(), new StringSerializer());
            var rights = driver.createInputTopic("right", new StringSerializer(), new StringSerializer());
            for (at = 0; at < inputs.size(); at++) {
                var input = inputs.get(at);
                (input.left ? lefts : rights).pipeInput(input.key, input.value, input.timestamp);
            }
        }
    }

    private Pair pair(String left, String right) {
        return new Pair(input(left), input(right));
    }

    private Input input(String value) {
        return inputs.stream().filter(input -> value != null && value.equals(input.value)).findFirst().orElse(null);
    }

    private static Properties settings() {
        var settings = new Properties();
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put(StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG, BuiltInDslStoreSuppliers.InMemoryDslStoreSuppliers.class);
        settings.put("__emit.interval.ms.kstreams.outer.join.spurious.results.fix__", 0L);
        return settings;
    }

    /** Remove one input that the class comment leaves out; return whether there was one. */
    private boolean removed() {
        var times = new long[inputs.size()];
        var stored = new long[] {-1, -1};
        long now = -1;
        for (int index = 0; index < inputs.size(); index++) {
            var input = inputs.get(index);
            if (!input.joinable() && input.timestamp > now) {
                return inputs.remove(input); // Kafka Streams takes its time, Tidegate rejects it
            }
            now = Math.max(now, input.timestamp);
            times[index] = now;
            if (input.joinable()) {
                boolean late = isClosed(input, now);
                int side = input.left ? 0 : 1;
                if (!late && input.timestamp - back(input) <= stored[1 - side] - before - after - grace) {
                    return inputs.remove(input); // its window reaches back to an instant that the store just dropped
                }
                if (late && outputs.stream().anyMatch(output -> output.pair.has(input))) {
                    return inputs.remove(input);
                }
                stored[side] = Math.max(stored[side], input.timestamp);
            }
        }
        var joined = new HashSet<Input>();
        for (var output : outputs) {
            var last = inputs.get(output.after);
            if (output.pair.padded() && output.key != null && !isClosed(output.pair.only(), times[output.after])) {
                return inputs.remove(output.pair.only());
            }
            if (!output.pair.padded()) {
                var first = output.pair.left.equals(last) ? output.pair.right : output.pair.left;
                if (isPadded(first) && isClosed(first, times[output.after]) && !joined.contains(first)) {
                    return inputs.remove(last);
                }
                joined.addAll(List.of(first, last));
            }
        }
        outputs.replaceAll(output -> output.pair.padded() && output.key != null ? output.at(firstBehind(output.pair.only(), times)) : output);
        return false;
    }

    /** Return the first input by which the window of that one has closed. */
    private int firstBehind(Input input, long[] times) {
        int found = inputs.indexOf(input);
        while (!isClosed(input, times[found])) {
            found++;
        }
        return found;
    }

    private boolean isPadded(Input input) {
        return how.equals("outer") || (how.equals("left") && input.left);
    }

    private boolean isClosed(Input input, long now) {
        return closes(input) < now;
    }

    private long closes(Input input) {
        return input.timestamp + (input.left ? after : before) + grace;
    }

    private int back(Input input) {
        return input.left ? before : after;
    }

    private int order(Input one, Input other) {
        return Comparator.comparingLong(this::closes).thenComparing(input -> !input.left).thenComparing(Input::id).compare(one, other);
    }

    private static String text(String text) {
        return text == null ? "null" : "\"" + text + "\"";
    }

    private static String value(Input input) {
        return input == null ? "null" : text(input.value);
    }

    private final class Result extends ContextualProcessor<String, Pair, Void, Void> {
        @Override
        public void process(Record<String, Pair> result) {
            outputs.add(new Output(at, result.key(), result.value(), result.timestamp()));
        }
    }
}
