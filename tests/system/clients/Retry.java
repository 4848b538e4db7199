// SPDX-License-Identifier: Apache-2.0
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.HexFormat;

/** POST with a key through HttpClient as it comes (it offers h2c), again when it throws. */
public class Retry {
    public static void main(String[] args) throws Exception {
        HttpClient client = HttpClient.newHttpClient();
        HttpRequest request = HttpRequest.newBuilder(URI.create(args[0]))
                .header("Idempotency-Key", args[1])
                .POST(HttpRequest.BodyPublishers.ofString(args[2]))
                .build();
        for (int left = 3; ; left--) {
            try {
                HttpResponse<byte[]> r = client.send(request, HttpResponse.BodyHandlers.ofByteArray());
                System.out.println(r.statusCode() + " "
                        + r.headers().firstValue("Idempotent-Replayed").orElse("") + " "
                        + HexFormat.of().formatHex(r.body()));
                System.exit(0);
            } catch (IOException e) {
                System.err.println("again after: " + e);
                if (left == 1) {
                    System.exit(1);
                }
            }
        }
    }
}
