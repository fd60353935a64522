# normal METHOD SEED: Box and Muller's transform, both outputs, of Crystal's Random (PCG32).
random = Random.new(ARGV[1].to_u64)
kept = nil.as(Float64?)
STDOUT.sync = false
while line = STDIN.gets
  line.to_i.times do
    if x = kept
      kept = nil
    else
      r = Math.sqrt(-2 * Math.log(1 - random.rand))
      angle = 2 * Math::PI * random.rand
      x = r * Math.cos(angle)
      kept = r * Math.sin(angle)
    end
    STDOUT.write_bytes(x, IO::ByteFormat::LittleEndian)
  end
  STDOUT.flush
end
