// Drives franz-go: commands in, answers out, a JSON object a line.
// The commands (create, produce, consume) and their fields are described in tests/clients/drivers.py.
//
// With arguments it is a member of a group, of franz-go or sarama, as tests/clients/group_member.py describes it:
//
//	driver franz|sarama KIND BOOTSTRAP GROUP TOPIC JOURNAL [INSTANCE_ID]
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

type record struct {
	Partition int32    `json:"partition"`
	Offset    int64    `json:"offset"`
	Timestamp *int64   `json:"timestamp"`
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	Headers   [][2]any `json:"headers"`
}

type command struct {
	Op         string   `json:"op"`
	Bootstrap  string   `json:"bootstrap"`
	Topic      string   `json:"topic"`
	Partitions int32    `json:"partitions"`
	Partition  int32    `json:"partition"`
	Codec      string   `json:"codec"`
	Count      int      `json:"count"`
	Offset     *int64   `json:"offset"`
	Timestamp  *int64   `json:"timestamp"`
	Records    []record `json:"records"`
	Library    string   `json:"library"`
	Security   security `json:"security"`
}

type answer struct {
	Error   string   `json:"error,omitempty"`
	Offsets []int64  `json:"offsets,omitempty"`
	Records []record `json:"records,omitempty"`
}

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

const (
	sessionTimeout    = 6 * time.Second
	heartbeatInterval = 300 * time.Millisecond
)

func main() {
	if len(os.Args) > 1 {
		member(os.Args[1:])
		return
	}
	commands := bufio.NewReaderSize(os.Stdin, 1<<20)
	answers := json.NewEncoder(os.Stdout)
	for {
		line, err := commands.ReadBytes('\n')
		if err != nil {
			return
		}
		var c command
		var a answer
		if err = json.Unmarshal(line, &c); err == nil {
			ctx, cancel := context.WithTimeout(context.Background(), 120*time.Second)
			a, err = perform(ctx, c)
			cancel()
		}
		if err != nil {
			a = answer{Error: err.Error()}
		}
		if err = answers.Encode(a); err != nil {
			panic(err)
		}
	}
}

func member(args []string) {
	run := map[string]func(kind, bootstrap, group, topic string, j *journal, instance string){
		"franz":  franzMember,
		"sarama": saramaMember,
	}[args[0]]
	instance := ""
	if len(args) > 6 {
		instance = args[6]
	}
	run(args[1], args[2], args[3], args[4], openJournal(args[5]), instance)
}

func perform(ctx context.Context, c command) (answer, error) {
	if c.Library == "sarama" {
		return performSarama(c)
	}
	switch c.Op {
	case "create":
		return create(ctx, c)
	case "produce":
		return produce(ctx, c)
	case "consume":
		return consume(ctx, c)
	}
	return answer{}, fmt.Errorf("unknown command %q", c.Op)
}

// newClient makes a client of franz-go for the listener of a command.
func newClient(c command, options ...kgo.Opt) (*kgo.Client, error) {
	protected, err := c.Security.franz()
	if err != nil {
		return nil, err
	}
	options = append(options, kgo.SeedBrokers(c.Bootstrap))
	return kgo.NewClient(append(options, protected...)...)
}

func create(ctx context.Context, c command) (answer, error) {
	client, err := newClient(c)
	if err != nil {
		return answer{}, err
	}
	defer client.Close()
	_, err = kadm.NewClient(client).CreateTopic(ctx, c.Partitions, 1, nil, c.Topic)
	return answer{}, err
}

func produce(ctx context.Context, c command) (answer, error) {
	client, err := newClient(
		c,
		kgo.ProducerBatchCompression(codecs[c.Codec]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(20*time.Millisecond),
	)
	if err != nil {
		return answer{}, err
	}
	defer client.Close()
	var records []*kgo.Record
	for _, r := range c.Records {
		produced := &kgo.Record{Topic: c.Topic, Partition: r.Partition, Key: r.Key, Value: r.Value}
		if r.Timestamp != nil {
			produced.Timestamp = time.UnixMilli(*r.Timestamp)
		}
		for _, h := range r.Headers {
			value, err := decodeHeader(h[1])
			if err != nil {
				return answer{}, err
			}
			produced.Headers = append(produced.Headers, kgo.RecordHeader{Key: h[0].(string), Value: value})
		}
		records = append(records, produced)
	}
	results := client.ProduceSync(ctx, records...)
	if err := results.FirstErr(); err != nil {
		return answer{}, err
	}
	// ProduceSync answers in the order in which partitions were acknowledged; the records keep their own order.
	var a answer
	for _, r := range records {
		a.Offsets = append(a.Offsets, r.Offset)
	}
	return a, nil
}

func consume(ctx context.Context, c command) (answer, error) {
	start := kgo.NewOffset()
	if c.Timestamp != nil {
		start = start.AfterMilli(*c.Timestamp)
	} else {
		start = start.At(*c.Offset)
	}
	client, err := newClient(
		c,
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{c.Topic: {c.Partition: start}}),
		kgo.FetchMaxWait(200*time.Millisecond),
	)
	if err != nil {
		return answer{}, err
	}
	defer client.Close()
	var a answer
	for len(a.Records) < c.Count {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return a, err
		}
		fetches.EachRecord(func(r *kgo.Record) { a.Records = append(a.Records, describe(r)) })
	}
	return a, nil
}

func describe(r *kgo.Record) record {
	timestamp := r.Timestamp.UnixMilli()
	out := record{Partition: r.Partition, Offset: r.Offset, Timestamp: &timestamp, Key: r.Key, Value: r.Value, Headers: [][2]any{}}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, [2]any{h.Key, h.Value})
	}
	return out
}

// decodeHeader turns a JSON header value (null or base 64 text) into bytes.
func decodeHeader(value any) ([]byte, error) {
	text, ok := value.(string)
	if !ok {
		return nil, nil
	}
	raw := []byte{}
	err := json.Unmarshal([]byte(fmt.Sprintf("%q", text)), &raw)
	return raw, err
}
