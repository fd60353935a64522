/* normal ENGINE/METHOD SEED: the GNU Scientific Library. */
#include <gsl/gsl_randist.h>
#include <gsl/gsl_rng.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    (void)argc;
    char *method = strchr(argv[1], '/');
    *method++ = 0;
    gsl_rng *engine = NULL;
    for (const gsl_rng_type **type = gsl_rng_types_setup(); *type; type++)
        if (!strcmp((*type)->name, argv[1])) engine = gsl_rng_alloc(*type);
    if (!engine) return 2;
    gsl_rng_set(engine, strtoul(argv[2], NULL, 10));
    double (*draw)(const gsl_rng *, double) = !strcmp(method, "polar") ? gsl_ran_gaussian
        : !strcmp(method, "ziggurat") ? gsl_ran_gaussian_ziggurat : gsl_ran_gaussian_ratio_method;
    for (long n; scanf("%ld", &n) == 1; fflush(stdout))
        for (; n > 0; n--) {
            double x = draw(engine, 1.0);
            fwrite(&x, sizeof x, 1, stdout);
        }
    return 0;
}
