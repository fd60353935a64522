# perl normal.pl METHOD SEED: rand with Box and Muller's transform, or Math::Random.
use strict;
my ($method, $seed) = @ARGV;
my $kept;
my $draw;
if ($method eq 'Math::Random') {
    require Math::Random;
    Math::Random::random_set_seed($seed % 2147483562 + 1, 12345);
} else {
    srand($seed);
}
$| = 1;
binmode STDOUT;
while (my $line = <STDIN>) {
    my @x;
    if ($method eq 'Math::Random') {
        @x = Math::Random::random_normal(int $line);
    } else {
        for (1 .. $line) {
            if (defined $kept) { push @x, $kept; undef $kept; next }
            my $r = sqrt(-2 * log(1 - rand));
            my $angle = 2 * 3.14159265358979323846 * rand;
            push @x, $r * cos $angle;
            $kept = $r * sin $angle;
        }
    }
    print pack('d<*', @x);
}
