// Command encode converts Pods from JSON, one per line on its standard input, to protobuf: each Pod with a length of
// four bytes, in big-endian order, on its standard output.
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"log"
	"os"

	corev1 "k8s.io/api/core/v1"
)

func main() {
	in, out := json.NewDecoder(bufio.NewReader(os.Stdin)), bufio.NewWriter(os.Stdout)
	for {
		var pod corev1.Pod
		if err := in.Decode(&pod); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			log.Fatal(err)
		}
		encoded, err := pod.Marshal()
		if err != nil {
			log.Fatal(err)
		}
		if err := binary.Write(out, binary.BigEndian, uint32(len(encoded))); err != nil {
			log.Fatal(err)
		}
		if _, err := out.Write(encoded); err != nil {
			log.Fatal(err)
		}
	}
	if err := out.Flush(); err != nil {
		log.Fatal(err)
	}
}
