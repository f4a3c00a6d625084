package main

import (
	"fmt"
	"time"

	"github.com/IBM/sarama"
)

var saramaCodecs = map[string]sarama.CompressionCodec{
	"none":   sarama.CompressionNone,
	"gzip":   sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy,
	"lz4":    sarama.CompressionLZ4,
	"zstd":   sarama.CompressionZSTD,
}

// performSarama carries out a command with sarama instead of franz-go.
func performSarama(c command) (answer, error) {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Compression = saramaCodecs[c.Codec]
	config.Consumer.MaxWaitTime = 200 * time.Millisecond
	if err := c.Security.sarama(config); err != nil {
		return answer{}, err
	}
	client, err := sarama.NewClient([]string{c.Bootstrap}, config)
	if err != nil {
		return answer{}, err
	}
	defer client.Close()
	switch c.Op {
	case "create":
		return saramaCreate(client, c)
	case "produce":
		return saramaProduce(client, c)
	case "consume":
		return saramaConsume(client, c)
	}
	return answer{}, fmt.Errorf("unknown command %q", c.Op)
}

func saramaCreate(client sarama.Client, c command) (answer, error) {
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		return answer{}, err
	}
	detail := &sarama.TopicDetail{NumPartitions: c.Partitions, ReplicationFactor: 1}
	return answer{}, admin.CreateTopic(c.Topic, detail, false)
}

func saramaProduce(client sarama.Client, c command) (answer, error) {
	producer, err := sarama.NewSyncProducerFromClient(client)
	if err != nil {
		return answer{}, err
	}
	defer producer.Close()
	var a answer
	for _, r := range c.Records {
		message := &sarama.ProducerMessage{Topic: c.Topic, Partition: r.Partition}
		if r.Key != nil {
			message.Key = sarama.ByteEncoder(r.Key)
		}
		if r.Value != nil {
			message.Value = sarama.ByteEncoder(r.Value)
		}
		if r.Timestamp != nil {
			message.Timestamp = time.UnixMilli(*r.Timestamp)
		}
		for _, h := range r.Headers {
			value, err := decodeHeader(h[1])
			if err != nil {
				return answer{}, err
			}
			message.Headers = append(message.Headers, sarama.RecordHeader{Key: []byte(h[0].(string)), Value: value})
		}
		_, offset, err := producer.SendMessage(message)
		if err != nil {
			return answer{}, err
		}
		a.Offsets = append(a.Offsets, offset)
	}
	return a, nil
}

func saramaConsume(client sarama.Client, c command) (answer, error) {
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return answer{}, err
	}
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(c.Topic, c.Partition, *c.Offset)
	if err != nil {
		return answer{}, err
	}
	defer partition.Close()
	var a answer
	timeout := time.After(60 * time.Second)
	for len(a.Records) < c.Count {
		select {
		case r := <-partition.Messages():
			timestamp := r.Timestamp.UnixMilli()
			found := record{Partition: r.Partition, Offset: r.Offset, Timestamp: &timestamp, Key: r.Key, Value: r.Value}
			found.Headers = [][2]any{}
			for _, h := range r.Headers {
				found.Headers = append(found.Headers, [2]any{string(h.Key), h.Value})
			}
			a.Records = append(a.Records, found)
		case <-timeout:
			return a, fmt.Errorf("%d of %d records", len(a.Records), c.Count)
		}
	}
	return a, nil
}
