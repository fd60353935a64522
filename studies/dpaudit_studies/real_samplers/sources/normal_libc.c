/* normal METHOD SEED: Box and Muller's transform, both outputs, on the C library's generators. */
#define _DEFAULT_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double from_rand(void) { return (rand() + 1.0) / (RAND_MAX + 2.0); }
static double from_random(void) { return (random() + 1.0) / 2147483649.0; }
static double from_drand48(void) { return 1 - drand48(); }
static double from_arc4random(void) { return (arc4random() + 0.5) / 4294967296.0; }

int main(int argc, char **argv) {
    (void)argc;
    unsigned seed = strtoul(argv[2], NULL, 10);
    srand(seed), srandom(seed), srand48(seed);
    double (*uniform)(void) = !strcmp(argv[1], "rand") ? from_rand
        : !strcmp(argv[1], "random") ? from_random
        : !strcmp(argv[1], "drand48") ? from_drand48 : from_arc4random;
    double kept = 0;
    int have = 0;
    for (long n; scanf("%ld", &n) == 1; fflush(stdout))
        for (; n > 0; n--) {
            double x = kept;
            if (!have) {
                double r = sqrt(-2 * log(uniform())), angle = 2 * M_PI * uniform();
                x = r * cos(angle), kept = r * sin(angle);
            }
            have = !have;
            fwrite(&x, sizeof x, 1, stdout);
        }
    return 0;
}
