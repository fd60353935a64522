// normal ENGINE SEED: boost::random::normal_distribution (a ziggurat).
#include <boost/random.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

template <class Engine> int serve(unsigned seed) {
    Engine engine(seed);
    boost::random::normal_distribution<double> law;
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
#define OFFER(name) if (!std::strcmp(argv[1], #name)) return serve<boost::random::name>(seed);
    OFFER(mt19937) OFFER(rand48) OFFER(taus88) OFFER(lagged_fibonacci607) OFFER(kreutzer1986)
    OFFER(hellekalek1995) OFFER(ecuyer1988) OFFER(mt11213b) OFFER(ranlux3) OFFER(minstd_rand)
    return 2;
}
