package main

import (
	"context"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

// saramaMember is a member of a group until it is told to leave. kind: range, roundrobin or sticky.
func saramaMember(kind, bootstrap, group, topic string, j *journal, instance string) {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Session.Timeout = sessionTimeout
	config.Consumer.Group.Heartbeat.Interval = heartbeatInterval
	config.Consumer.Group.InstanceId = instance
	config.Consumer.MaxWaitTime = 200 * time.Millisecond
	config.Metadata.RefreshFrequency = 2 * time.Second
	config.Net.DialTimeout = 3 * time.Second
	config.Net.ReadTimeout = 10 * time.Second
	strategies := map[string]sarama.BalanceStrategy{
		"range":      sarama.NewBalanceStrategyRange(),
		"roundrobin": sarama.NewBalanceStrategyRoundRobin(),
		"sticky":     sarama.NewBalanceStrategySticky(),
	}
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategies[kind]}
	client, err := sarama.NewClient(strings.Split(bootstrap, ","), config)
	check(err)
	admin, err := sarama.NewClusterAdminFromClient(client)
	check(err)
	consumer, err := sarama.NewConsumerGroupFromClient(group, client)
	check(err)
	ctx, cancel := context.WithCancel(context.Background())
	told := toldToLeave()
	go func() {
		<-told
		cancel()
	}()
	handler := &saramaHandler{group, topic, j, admin}
	for ctx.Err() == nil {
		if err := consumer.Consume(ctx, []string{topic}, handler); err != nil {
			time.Sleep(100 * time.Millisecond)
		}
	}
	check(consumer.Close())
}

type saramaHandler struct {
	group, topic string
	journal      *journal
	admin        sarama.ClusterAdmin
}

func (h *saramaHandler) Setup(session sarama.ConsumerGroupSession) error {
	h.journal.assigned(session.Claims()[h.topic], session.GenerationID())
	return nil
}

func (h *saramaHandler) Cleanup(session sarama.ConsumerGroupSession) error {
	h.journal.gone("revoked", session.Claims()[h.topic])
	return nil
}

func (h *saramaHandler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case <-session.Context().Done():
			return nil
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			first, last := message.Offset, message.Offset
			for more := true; more && last-first < 500; {
				select {
				case next, open := <-claim.Messages():
					if more = open; open {
						last = next.Offset
					}
				default:
					more = false
				}
			}
			h.journal.read(claim.Partition(), first, last)
			h.commit(session, claim.Partition(), last+1)
		}
	}
}

// commit: sarama does not say whether a commit was acknowledged, so the coordinator is asked what it has.
func (h *saramaHandler) commit(session sarama.ConsumerGroupSession, partition int32, offset int64) {
	session.MarkOffset(h.topic, partition, offset, "")
	session.Commit()
	found, err := h.admin.ListConsumerGroupOffsets(h.group, map[string][]int32{h.topic: {partition}})
	if err != nil {
		return
	}
	if block := found.GetBlock(h.topic, partition); block != nil && block.Err == sarama.ErrNoError {
		if block.Offset >= offset {
			h.journal.committed(partition, offset)
		}
	}
}
