//go:build race

package tree_test

// raceDetector tells that everything takes ten times as long.
const raceDetector = true
