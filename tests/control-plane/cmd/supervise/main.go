// Command supervise runs one program, which must not outlive the process that started supervise.
//
//	supervise [-remove folder]... [-remove-run folder] [program argument...]
//
// Only the starting process holds its standard input, a pipe, open. When that process exits, also
// after a crash, the pipe closes. Supervise then kills the process group of the program, removes
// the folders of its flags, and exits. If supervise itself is killed, the kernel kills the program.
//
// Lines on the pipe are commands: `term` terminates the program, `kill` kills its process group.
// Standard output has two lines: `started <pid>`, then `exited <raw wait status>`. The output of
// the program is redirected to standard error.
//
// Without a program, supervise waits until the pipe closes and then removes the folders.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// keepMark is the file in a run folder whose presence keeps the logs.
	keepMark = "keep-logs"
	// logsFolder is the part of a run folder that then stays.
	logsFolder = "logs"
	// removalPatience bounds the wait for others, killed at the same moment, to stop writing.
	removalPatience = 10 * time.Second
)

type folders []string

func (f *folders) String() string         { return fmt.Sprint(*f) }
func (f *folders) Set(value string) error { *f = append(*f, value); return nil }

func init() {
	// A parent-death signal is sent when the *thread* that started the child ends. The main
	// thread lives as long as the process.
	runtime.LockOSThread()
}

func main() {
	var remove, removeRun folders
	flag.Var(&remove, "remove", "folder to remove in the end")
	flag.Var(&removeRun, "remove-run", "run folder to remove in the end, except for logs to be kept")
	flag.Parse()

	err := supervise(flag.Args())
	for _, folder := range remove {
		err = errors.Join(err, removeAll(folder))
	}
	for _, folder := range removeRun {
		err = errors.Join(err, removeRunFolder(folder))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "supervise:", err)
		os.Exit(1)
	}
}

// supervise returns when the program has ended, or, without one, when the starting process has.
func supervise(program []string) error {
	orders := readOrders()
	if len(program) == 0 {
		for range orders {
		}
		return nil
	}
	command, err := start(program)
	if err != nil {
		return err
	}
	fmt.Printf("started %d\n", command.Process.Pid)

	ended := make(chan struct{})
	obeyed := make(chan struct{})
	go func() {
		defer close(obeyed)
		obey(orders, command.Process, ended)
	}()
	state, err := wait(command.Process, func() {
		close(ended)
		<-obeyed
		// The program is gone; what it started in its group must be too.
		_ = unix.Kill(-command.Process.Pid, unix.SIGKILL)
	})
	if err != nil {
		return err
	}
	status, _ := state.Sys().(syscall.WaitStatus)
	// The reader might have exited.
	_, _ = fmt.Printf("exited %d\n", int(status))
	return nil
}

// wait reaps the program after `last` has run. Until then the kernel cannot reuse its process id,
// which is also the id of its group.
func wait(process *os.Process, last func()) (*os.ProcessState, error) {
	for errors.Is(unix.Waitid(unix.P_PID, process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
	last()
	return process.Wait()
}

func start(program []string) (*exec.Cmd, error) {
	command := exec.Command(program[0], program[1:]...)
	command.Stdout = os.Stderr
	command.Stderr = os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	return command, command.Start()
}

// obey carries out orders until the program has ended; the end of orders is an order to kill.
func obey(orders <-chan string, process *os.Process, ended <-chan struct{}) {
	for {
		select {
		case <-ended:
			return
		case order, more := <-orders:
			switch {
			case !more || order == "kill":
				_ = unix.Kill(-process.Pid, unix.SIGKILL)
			case order == "term":
				_ = process.Signal(unix.SIGTERM)
			}
			if !more {
				return
			}
		}
	}
}

// readOrders yields the lines of standard input and closes at its end. A signal to supervise
// itself means the same as the end of the pipe.
func readOrders() <-chan string {
	lines := make(chan string)
	go func() {
		scanner := bufio.NewScanner(os.Stdin)
		for scanner.Scan() {
			lines <- scanner.Text()
		}
		close(lines)
	}()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGPIPE)

	orders := make(chan string)
	go func() {
		defer close(orders)
		for {
			select {
			case <-signals:
				return
			case line, more := <-lines:
				if !more {
					return
				}
				orders <- line
			}
		}
	}()
	return orders
}

// removeRunFolder removes a run folder, or all but its logs if they are kept.
func removeRunFolder(folder string) error {
	if _, err := os.Stat(filepath.Join(folder, keepMark)); err != nil {
		return removeAll(folder)
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if name := entry.Name(); name != logsFolder && name != keepMark {
			err = errors.Join(err, removeAll(filepath.Join(folder, name)))
		}
	}
	return err
}

// removeAll removes a folder to which other processes can write until they are killed.
func removeAll(folder string) error {
	deadline := time.Now().Add(removalPatience)
	for {
		err := os.RemoveAll(folder)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}
