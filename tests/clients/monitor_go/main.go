// A program that watches the state of orders-0 in ZooKeeper, as articles on Kafka's replication describe it: it prints
// leader, replicas, ISR and followers, waits for the event of its watch, and reads again.
//
// The struct has the replicas that such articles expect of a state. Kafka's states have none (they are in
// /brokers/topics/orders), so that the program prints none.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/go-zookeeper/zk"
)

const path = "/brokers/topics/orders/partitions/0/state"

type partitionState struct {
	Leader   int   `json:"leader"`
	Replicas []int `json:"replicas"`
	ISR      []int `json:"isr"`
}

func (state partitionState) followers() []int {
	found := []int{}
	for _, replica := range state.Replicas {
		if replica != state.Leader {
			found = append(found, replica)
		}
	}
	return found
}

func watch(conn *zk.Conn) error {
	for {
		data, _, events, err := conn.GetW(path)
		if err != nil {
			return err
		}
		var state partitionState
		if err := json.Unmarshal(data, &state); err != nil {
			return err
		}
		fmt.Printf("Topic: orders, Partition: 0, Leader: Broker %d, Replicas: %v, ISR: %v\n",
			state.Leader, state.Replicas, state.ISR)
		fmt.Printf("Followers: %v\n", state.followers())
		event := <-events
		fmt.Printf("Partition event: %s\n", event.Type)
		if event.Type == zk.EventNodeDataChanged {
			fmt.Println("Partition state changed, checking new state...")
		}
	}
}

func main() {
	address := "localhost:2181"
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	conn, _, err := zk.Connect([]string{address}, 5*time.Second)
	if err != nil {
		fmt.Println("Error:", err)
		os.Exit(1)
	}
	defer conn.Close()
	for {
		fmt.Println("Error:", watch(conn))
		time.Sleep(5 * time.Second)
	}
}
