-- lua normal.lua METHOD SEED: Box and Muller's transform, both outputs, of math.random.
math.randomseed(tonumber(arg[2]))
local pack = string.pack
if not pack then
  local ffi = require 'ffi'
  local box = ffi.new('double[1]')
  pack = function(_, x) box[0] = x return ffi.string(box, 8) end
end
local kept
for line in io.lines() do
  for _ = 1, tonumber(line) do
    local x = kept
    if x then
      kept = nil
    else
      local r = math.sqrt(-2 * math.log(1 - math.random()))
      local angle = 2 * math.pi * math.random()
      x, kept = r * math.cos(angle), r * math.sin(angle)
    end
    io.write(pack('<d', x))
  end
  io.flush()
end
