/* Closed samplers, and a mechanism, as a vendor might ship them.
   Build: cc -O2 -shared -fPIC -o libnoise.so noise.c -lm */

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/random.h>

static uint64_t state[4];
static int seeded;

static uint64_t rotated(uint64_t x, int by) { return (x << by) | (x >> (64 - by)); }

/* xoshiro256++ (Blackman and Vigna), seeded once from the operating system. */
static uint64_t next(void) {
    while (!seeded) seeded = getrandom(state, sizeof state, 0) == sizeof state;
    uint64_t result = rotated(state[0] + state[3], 23) + state[0], t = state[1] << 17;
    state[2] ^= state[0];
    state[3] ^= state[1];
    state[1] ^= state[2];
    state[0] ^= state[3];
    state[2] ^= t;
    state[3] = rotated(state[3], 45);
    return result;
}

/* Honest: Box and Muller's transform of uniforms of 53 bits in (0, 1]. */
void gauss(double *out, size_t n, size_t d) {
    for (size_t i = 0; i < n * d; i += 2) {
        double r = sqrt(-2 * log(((next() >> 11) + 1) * 0x1p-53));
        double a = 2 * M_PI * ((next() >> 11) * 0x1p-53);
        out[i] = r * cos(a);
        if (i + 1 < n * d) out[i + 1] = r * sin(a);
    }
}

/* Flawed: the same from uniforms of 16 bits, as on microcontrollers: no value beyond 4.71, few
   lengths and angles. */
void gauss16(double *out, size_t n, size_t d) {
    for (size_t i = 0; i < n * d; i += 2) {
        double r = sqrt(-2 * log(((next() >> 48) + 1) * 0x1p-16));
        double a = 2 * M_PI * ((next() >> 48) * 0x1p-16);
        out[i] = r * cos(a);
        if (i + 1 < n * d) out[i + 1] = r * sin(a);
    }
}

/* Honest, one value per call: --call 'f(2.0) -> double' for a scale of 2. */
double laplace(double scale) {
    uint64_t bits = next();
    double size = -scale * log(((bits >> 11) + 1) * 0x1p-53);
    return bits & 1 ? -size : size;
}

/* A mechanism: a count with noise for ε = 1, both on a grid. --call 'f(value) -> double' */
double released(double value) { return rint((value + laplace(1.0)) * 1024) / 1024; }

/* The same for a query of m numbers; n releases per call, as dpaudit mechanism calls by default. */
void released_many(const double *value, size_t m, double *out, size_t n) {
    for (size_t i = 0; i < n * m; i++) out[i] = released(value[i % m]);
}
