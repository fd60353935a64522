# ruby normal.rb METHOD SEED: Box and Muller's transform, both outputs, of Random.
random = Random.new(Integer(ARGV[1]))
kept = nil
STDOUT.binmode
while (line = STDIN.gets)
  values = Array.new(Integer(line)) do
    if kept
      x, kept = kept, nil
    else
      r = Math.sqrt(-2 * Math.log(1 - random.rand))
      angle = 2 * Math::PI * random.rand
      x, kept = r * Math.cos(angle), r * Math.sin(angle)
    end
    x
  end
  STDOUT.write(values.pack('E*'))
  STDOUT.flush
end
