# Rscript normal.R GENERATOR/NORMAL SEED: rnorm with the kinds that RNGkind names.
args <- commandArgs(TRUE)
kinds <- strsplit(args[1], "/", fixed = TRUE)[[1]]
RNGkind(kinds[1], kinds[2])
set.seed(as.integer(args[2]))
input <- file("stdin", "r")
out <- pipe("cat", "wb")
while (length(line <- readLines(input, 1)) > 0) {
  writeBin(rnorm(as.integer(line)), out)
  flush(out)
}
close(out)
