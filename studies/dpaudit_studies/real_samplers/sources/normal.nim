# normal METHOD SEED: gauss of std/random.
import std/[os, random, strutils]
var state = initRand(parseInt(paramStr(2)))
for line in stdin.lines:
  for i in 1 .. parseInt(line):
    var x = state.gauss()
    discard stdout.writeBuffer(addr x, 8)
  stdout.flushFile()
