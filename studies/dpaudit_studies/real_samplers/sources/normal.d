// normal METHOD SEED: Box and Muller's transform, both outputs, of Phobos' engines.
import std.conv, std.math, std.random, std.stdio;

void serve(Engine)(Engine engine) {
    double kept = 0;
    bool have;
    foreach (line; stdin.byLine) {
        foreach (i; 0 .. line.to!int) {
            double x = kept;
            if (!have) {
                immutable r = sqrt(-2 * log(1 - uniform01(engine)));
                immutable angle = 2 * PI * uniform01(engine);
                x = r * cos(angle);
                kept = r * sin(angle);
            }
            have = !have;
            stdout.rawWrite((&x)[0 .. 1]);
        }
        stdout.flush();
    }
}

void main(string[] args) {
    immutable seed = args[2].to!uint;
    if (args[1] == "minstd") serve(MinstdRand(seed));
    else if (args[1] == "xorshift") serve(Xorshift128(seed));
    else serve(Mt19937(seed));
}
