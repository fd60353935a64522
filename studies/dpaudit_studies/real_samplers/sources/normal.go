// normal METHOD SEED: math/rand of Go's library.
package main

import (
	"bufio"
	"encoding/binary"
	"math"
	"math/rand"
	"os"
	"strconv"
)

func main() {
	seed, _ := strconv.ParseInt(os.Args[2], 10, 64)
	source := rand.New(rand.NewSource(seed))
	input, out := bufio.NewScanner(os.Stdin), bufio.NewWriter(os.Stdout)
	bytes := make([]byte, 8)
	for input.Scan() {
		n, _ := strconv.Atoi(input.Text())
		for i := 0; i < n; i++ {
			x := 0.0
			if os.Args[1] == "NormFloat64" {
				x = source.NormFloat64()
			} else {
				x = math.Sqrt(-2*math.Log(1-source.Float64())) * math.Cos(2*math.Pi*source.Float64())
			}
			binary.LittleEndian.PutUint64(bytes, math.Float64bits(x))
			out.Write(bytes)
		}
		out.Flush()
	}
}
