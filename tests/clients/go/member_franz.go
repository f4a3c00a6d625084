package main

import (
	"context"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// franzMember is a member of a group until it is told to leave. kind: range, cooperative or consumer (KIP-848).
func franzMember(kind, bootstrap, group, topic string, j *journal, instance string) {
	assigned := func(_ context.Context, client *kgo.Client, partitions map[string][]int32) {
		_, generation := client.GroupMetadata()
		j.assigned(partitions[topic], generation)
	}
	gone := func(event string) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			j.gone(event, partitions[topic])
		}
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(assigned),
		kgo.OnPartitionsRevoked(gone("revoked")),
		kgo.OnPartitionsLost(gone("lost")),
		kgo.SessionTimeout(sessionTimeout),
		kgo.HeartbeatInterval(heartbeatInterval),
		kgo.FetchMaxWait(200 * time.Millisecond),
		kgo.MetadataMinAge(250 * time.Millisecond),
		kgo.MetadataMaxAge(2 * time.Second),
	}
	switch kind {
	case "range":
		options = append(options, kgo.Balancers(kgo.RangeBalancer()))
	case "consumer":
		options = append(options, kgo.ServerSideBalancer())
	default:
		options = append(options, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	}
	if instance != "" {
		options = append(options, kgo.InstanceID(instance))
	}
	client, err := kgo.NewClient(options...)
	check(err)
	ctx, cancel := context.WithCancel(context.Background())
	told := toldToLeave()
	go func() {
		<-told
		cancel()
	}()
	for ctx.Err() == nil {
		franzPoll(ctx, client, j)
	}
	client.CloseAllowingRebalance()
}

func franzPoll(ctx context.Context, client *kgo.Client, j *journal) {
	defer client.AllowRebalance()
	fetches := client.PollRecords(ctx, 500)
	var last []*kgo.Record
	fetches.EachPartition(func(read kgo.FetchTopicPartition) {
		if count := len(read.Records); count > 0 {
			j.read(read.Partition, read.Records[0].Offset, read.Records[count-1].Offset)
			last = append(last, read.Records[count-1])
		}
	})
	if len(last) == 0 {
		return
	}
	limited, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if client.CommitRecords(limited, last...) != nil {
		return
	}
	for _, record := range last {
		j.committed(record.Partition, record.Offset+1)
	}
}
