// Prints what kazoo-go reads from ZooKeeper, as one JSON object; with `create` or `delete` it changes topics there.
//
//	kazoo CONNECT                              brokers, controller, and per partition replicas, leader, ISR
//	kazoo CONNECT create TOPIC PARTITIONS RF   writes the znodes of a topic
//	kazoo CONNECT delete TOPIC                 writes the znode that asks for its deletion
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"

	"github.com/wvanbergen/kazoo-go"
)

type partition struct {
	Replicas        []int32 `json:"replicas"`
	Leader          int32   `json:"leader"`
	ISR             []int32 `json:"isr"`
	UnderReplicated bool    `json:"under_replicated"`
	Preferred       bool    `json:"preferred"`
}

type cluster struct {
	Brokers    map[int32]string             `json:"brokers"`
	Controller int32                        `json:"controller"`
	Topics     map[string]map[int]partition `json:"topics"`
	Configs    map[string]map[string]string `json:"configs"`
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func read(kz *kazoo.Kazoo) cluster {
	found := cluster{Topics: map[string]map[int]partition{}, Configs: map[string]map[string]string{}}
	var err error
	found.Brokers, err = kz.Brokers()
	check(err)
	found.Controller, err = kz.Controller()
	check(err)
	topics, err := kz.Topics()
	check(err)
	for _, topic := range topics {
		found.Configs[topic.Name], err = topic.Config()
		check(err)
		partitions, err := topic.Partitions()
		check(err)
		rows := map[int]partition{}
		for _, each := range partitions {
			row := partition{Replicas: each.Replicas}
			row.Leader, err = each.Leader()
			check(err)
			row.ISR, err = each.ISR()
			check(err)
			row.UnderReplicated, err = each.UnderReplicated()
			check(err)
			row.Preferred, err = each.UsesPreferredReplica()
			check(err)
			rows[int(each.ID)] = row
		}
		found.Topics[topic.Name] = rows
	}
	return found
}

func main() {
	kz, err := kazoo.NewKazooFromConnectionString(os.Args[1], nil)
	check(err)
	defer kz.Close()
	switch {
	case len(os.Args) == 2:
		check(json.NewEncoder(os.Stdout).Encode(read(kz)))
	case os.Args[2] == "create":
		partitions, err := strconv.Atoi(os.Args[4])
		check(err)
		replicas, err := strconv.Atoi(os.Args[5])
		check(err)
		check(kz.CreateTopic(os.Args[3], partitions, replicas, map[string]string{"retention.ms": "1000000"}))
	case os.Args[2] == "delete":
		check(kz.DeleteTopic(os.Args[3]))
	}
}
