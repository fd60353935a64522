/* TestU01 on the bits that `dpaudit audit --bits FILE` writes: two values per 32-bit number.
   cc -O2 -o testu01 examples/other_batteries/testu01.c -ltestu01 -ltestu01probdist -ltestu01mylib -lm
   ./testu01 < FILE          SmallCrush, which reads 453 million values
   ./testu01 1e6 < FILE      Rabbit on as many bits per test; 1e6 reads 2 million values in all
   Exits 1 if a p-value is beyond 1e-4, 2 if the input ended before the last test. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <testu01/bbattery.h>
#include <testu01/swrite.h>
#include <testu01/unif01.h>

#define MOST 200 /* p-values that TestU01 has room for */

static unsigned long numbers = 0;

/* One line per p-value beyond 1e-4, and how many there are; those not computed yet are -1. */
static int failed(void) {
  int failures = 0, computed = 0;
  for (int i = 0; i < MOST; i++) {
    double p = bbattery_pVal[i];
    if (bbattery_TestNames[i] == NULL || p < 0) continue;
    computed++;
    if (p > 1e-4 && p < 1 - 1e-4) continue;
    failures++;
    printf("failed: %s, p = %.3g\n", bbattery_TestNames[i], p);
  }
  printf("%d of %d p-values beyond 1e-4, after %lu numbers\n", failures, computed, numbers);
  fflush(stdout);
  return failures;
}

static unsigned int next_bits(void) {
  static uint16_t pair[1 << 16];
  static size_t at = 0, have = 0;
  if (at + 2 > have) {
    have = fread(pair, sizeof *pair, sizeof pair / sizeof *pair, stdin);
    at = 0;
    if (have < 2) {
      fputs("the input has ended before the last test\n", stderr);
      exit(failed() ? 1 : 2);
    }
  }
  at += 2;
  numbers++;
  return (unsigned int)pair[at - 2] << 16 | pair[at - 1];
}

int main(int argc, char **argv) {
  unif01_Gen *bits = unif01_CreateExternGenBits("dpaudit --bits", next_bits);
  for (int i = 0; i < MOST; i++) bbattery_pVal[i] = -1;
  swrite_Basic = FALSE;
  if (argc > 1)
    bbattery_Rabbit(bits, atof(argv[1]));
  else
    bbattery_SmallCrush(bits);
  int failures = failed();
  unif01_DeleteExternGenBits(bits);
  return failures > 0;
}
