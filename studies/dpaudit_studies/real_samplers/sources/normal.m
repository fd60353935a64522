% octave-cli normal.m METHOD SEED
args = argv ();
method = args{end - 1};
seed = str2double (args{end});
if (strcmp (method, "randn-old"))
  randn ("seed", seed);
else
  randn ("twister", seed);
  rand ("twister", seed);
endif
while (! isempty (line = input ("", "s")))
  n = str2double (line);
  switch (method)
    case {"randn", "randn-old"}
      x = randn (1, n);
    case "randn-single"
      x = double (randn (1, n, "single"));
    case "erfinv"
      x = sqrt (2) * erfinv (2 * rand (1, n) - 1);
  endswitch
  fwrite (stdout, x, "double");
  fflush (stdout);
endwhile
