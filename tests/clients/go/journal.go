package main

import (
	"encoding/json"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// journal is what a member of a group notes of itself; tests/clients/group_member.py says what stands in it. A line is
// one write, so what was written is there even if the process is killed right after.
type journal struct{ file *os.File }

func openJournal(path string) *journal {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	check(err)
	return &journal{file}
}

func (j *journal) note(event string, values map[string]any) {
	var now unix.Timespec
	check(unix.ClockGettime(unix.CLOCK_MONOTONIC, &now))
	values["at"] = float64(now.Nano()) / 1e9
	values["event"] = event
	line, err := json.Marshal(values)
	check(err)
	_, err = j.file.Write(append(line, '\n'))
	check(err)
}

func (j *journal) assigned(partitions []int32, generation int32) {
	j.note("assigned", map[string]any{"partitions": list(partitions), "generation": generation})
}

// gone notes partitions that were given up ("revoked") or taken away ("lost").
func (j *journal) gone(event string, partitions []int32) {
	j.note(event, map[string]any{"partitions": list(partitions)})
}

func (j *journal) read(partition int32, first, last int64) {
	j.note("read", map[string]any{"partition": partition, "first": first, "last": last})
}

func (j *journal) committed(partition int32, offset int64) {
	j.note("committed", map[string]any{"partition": partition, "offset": offset})
}

// list is never null in JSON.
func list(partitions []int32) []int32 { return append([]int32{}, partitions...) }

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// toldToLeave is closed by SIGTERM.
func toldToLeave() <-chan struct{} {
	signals, told := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, syscall.SIGTERM)
	go func() {
		<-signals
		close(told)
	}()
	return told
}
