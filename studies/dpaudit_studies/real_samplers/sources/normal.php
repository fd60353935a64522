<?php
// php normal.php METHOD SEED: Box and Muller's transform, both outputs.
[, $method, $seed] = $argv;
mt_srand((int) $seed);
$engines = ['xoshiro' => 'Random\Engine\Xoshiro256StarStar', 'pcg' => 'Random\Engine\PcgOneseq128XslRr64'];
$randomizer = isset($engines[$method]) ? new Random\Randomizer(new $engines[$method]((int) $seed)) : null;
function uniform(string $method, $randomizer): float {
    return match ($method) {
        'mt_rand' => (mt_rand() + 1) / (mt_getrandmax() + 2),
        'lcg_value' => 1 - lcg_value(),
        'random_int' => (random_int(0, 2147483647) + 1) / 2147483649,
        default => ($randomizer->getInt(0, PHP_INT_MAX) + 1) / PHP_INT_MAX,
    };
}
$kept = null;
while (($line = fgets(STDIN)) !== false) {
    $out = '';
    for ($i = (int) $line; $i > 0; $i--) {
        if ($kept === null) {
            $r = sqrt(-2 * log(uniform($method, $randomizer)));
            $angle = 2 * M_PI * uniform($method, $randomizer);
            $x = $r * cos($angle);
            $kept = $r * sin($angle);
        } else {
            $x = $kept;
            $kept = null;
        }
        $out .= pack('e', $x);
    }
    fwrite(STDOUT, $out);
    fflush(STDOUT);
}
