// SPDX-License-Identifier: Apache-2.0
//
// Prints tests/data/partitions.txt: which partition Kafka's own Java client chooses for a key.
//
//     java -Dfile.encoding=UTF-8 -cp "$(python3 tests/support/kafka/kafka_server.py)/jars/*" \
//         tests/support/kafka/Partitions.java > tests/data/partitions.txt
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;

public class Partitions {
    public static void main(String[] args) {
        List<String> keys = new ArrayList<>(List.of("", "a", "ab", "abc", "abcd", "abcde", "0", " ",
                "order-42", "Österreich", "日本語", "ключ", "🙂", "e\u0301", "\u00e9",
                "550e8400-e29b-41d4-a716-446655440000", "a\tb", "a\nb", "\u007f", "\u0080"));
        for (int i = 0; i < 24; i++)
            keys.add("customer-" + i * 7919);
        for (int n : new int[] {31, 32, 33, 255, 1000, 4096})
            keys.add("k".repeat(n));
        System.out.println("# The partition that Kafka's Java client 4.4.0 chooses for a key: name, key, of 6 "
                + "partitions, of 7.\n# Printed by tests/support/kafka/Partitions.java.");
        for (int i = 0; i < keys.size(); i++) {
            byte[] key = keys.get(i).getBytes(StandardCharsets.UTF_8);
            System.out.printf("key-%02d\t%s\t%d\t%d%n", i, field(keys.get(i)),
                    BuiltInPartitioner.partitionForKey(key, 6),
                    BuiltInPartitioner.partitionForKey(key, 7));
        }
    }

    /** As tests/data/README.md says. */
    static String field(String key) {
        if (key.isEmpty())
            return "\\e";
        if (key.length() > 30 && key.chars().distinct().count() == 1)
            return "\\[" + key.length() + "*" + key.charAt(0) + "]";
        return key.replace("\t", "\\t").replace("\n", "\\n").replace(" ", "\\s")
                .replace("\u007f", "\\x7f").replace("\u0080", "\\xc2\\x80");
    }
}
