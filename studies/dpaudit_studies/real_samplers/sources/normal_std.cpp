// normal ENGINE SEED: std::normal_distribution.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

template <class Engine> int serve(unsigned seed) {
    Engine engine(seed);
    std::normal_distribution<double> law;
    std::vector<double> x;
    for (long n; std::scanf("%ld", &n) == 1; std::fflush(stdout)) {
        x.resize(n);
        for (double &one : x) one = law(engine);
        std::fwrite(x.data(), sizeof(double), n, stdout);
    }
    return 0;
}

int main(int, char **argv) {
    unsigned seed = std::strtoul(argv[2], nullptr, 10);
#define OFFER(name) if (!std::strcmp(argv[1], #name)) return serve<std::name>(seed);
    OFFER(mt19937) OFFER(mt19937_64) OFFER(minstd_rand) OFFER(minstd_rand0)
    OFFER(ranlux24) OFFER(ranlux24_base) OFFER(ranlux48) OFFER(knuth_b)
    return 2;
}
