// mono normal.exe METHOD SEED: Box and Muller's transform, both outputs, of System.Random.
using System;

class Normal {
    static void Main(string[] args) {
        var random = new Random(int.Parse(args[1]));
        var output = Console.OpenStandardOutput();
        double kept = 0;
        bool have = false;
        for (string line; (line = Console.ReadLine()) != null; output.Flush()) {
            int n = int.Parse(line);
            var bytes = new byte[8 * n];
            for (int i = 0; i < n; i++) {
                double x = kept;
                if (!have) {
                    double r = Math.Sqrt(-2 * Math.Log(1 - random.NextDouble()));
                    double angle = 2 * Math.PI * random.NextDouble();
                    x = r * Math.Cos(angle);
                    kept = r * Math.Sin(angle);
                }
                have = !have;
                BitConverter.GetBytes(x).CopyTo(bytes, 8 * i);
            }
            output.Write(bytes, 0, bytes.Length);
        }
    }
}
