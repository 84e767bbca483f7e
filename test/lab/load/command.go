// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"fmt"
	"strconv"
)

// Command is a command of the program in a container. Its arguments are some texts, and then some numbers.
type Command struct {
	Texts, Numbers int
	Run            func(texts []string, numbers []int) error
}

// Execute runs the command that the first argument names. It returns the usage as an error if there is no such command.
func Execute(commands map[string]Command, args []string, usage string) error {
	command, known := commands[args[0]]
	if !known || len(args) != 1+command.Texts+command.Numbers {
		return errors.New(usage)
	}

	var numbers []int
	for _, text := range args[1+command.Texts:] {
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("argument of %s: %w", args[0], err)
		}
		numbers = append(numbers, n)
	}
	return command.Run(args[1:1+command.Texts], numbers)
}
