# gawk -f normal.awk METHOD SEED: Box and Muller's transform, both outputs, of rand; as text.
BEGIN {
    srand(ARGV[2]); pi = atan2(0, -1)
    while ((getline line < "/dev/stdin") > 0) {
        for (i = 0; i < line; i++) {
            if (have) { x = kept } else {
                r = sqrt(-2 * log(1 - rand())); angle = 2 * pi * rand()
                x = r * cos(angle); kept = r * sin(angle)
            }
            have = !have
            printf "%.17g\n", x
        }
        fflush()
    }
}
