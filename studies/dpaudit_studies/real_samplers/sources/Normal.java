// java Normal.java METHOD SEED: Java's own generators, and those of Commons Math.
import java.io.*;
import java.nio.*;
import java.util.function.DoubleSupplier;
import java.util.random.*;

class Normal {
    public static void main(String[] args) throws Exception {
        DoubleSupplier next = start(args[0], Long.parseLong(args[1]));
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        OutputStream out = new BufferedOutputStream(System.out, 1 << 16);
        byte[] bytes = new byte[8];
        ByteBuffer buffer = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
        for (String line; (line = input.readLine()) != null; out.flush())
            for (int n = Integer.parseInt(line); n > 0; n--) {
                buffer.putDouble(0, next.getAsDouble());
                out.write(bytes);
            }
    }

    static DoubleSupplier start(String method, long seed) throws Exception {
        if (method.equals("Random")) return new java.util.Random(seed)::nextGaussian;
        if (method.equals("SecureRandom")) return new java.security.SecureRandom()::nextGaussian;
        if (method.startsWith("org.")) {
            Class<?> type = Class.forName(method);
            Object made = type.getConstructor(long.class).newInstance(seed);
            var gaussian = type.getMethod("nextGaussian");
            return () -> {
                try {
                    return (double) gaussian.invoke(made);
                } catch (ReflectiveOperationException error) {
                    throw new RuntimeException(error);
                }
            };
        }
        return RandomGeneratorFactory.of(method).create(seed)::nextGaussian;
    }
}
