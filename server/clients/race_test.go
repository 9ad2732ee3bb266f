//go:build race

package clients

// raceDetector makes stacks larger.
const raceDetector = true
