package main

import (
	"image/color"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// colours are distinguishable for most people; each service keeps its own.
var colours = map[string]color.Color{
	"zlockd":    color.RGBA{R: 0x00, G: 0x72, B: 0xb2, A: 0xff},
	"ZooKeeper": color.RGBA{R: 0xd5, G: 0x5e, B: 0x00, A: 0xff},
	"etcd":      color.RGBA{R: 0x00, G: 0x9e, B: 0x73, A: 0xff},
	"Redis":     color.RGBA{R: 0xcc, G: 0x79, B: 0xa7, A: 0xff},
}

type drawing struct {
	file, title, x, y string
	logX, logY        bool
	data              series
}

// drawAll writes the drawings.
func drawAll(dir string, list []drawing) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, d := range list {
		p := plot.New()
		p.Title.Text, p.X.Label.Text, p.Y.Label.Text = d.title, d.x, d.y
		p.BackgroundColor = color.White // readable on a dark page too
		p.Legend.Top, p.Legend.Left = true, true
		p.Add(plotter.NewGrid())
		if d.logX {
			p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
		} else {
			p.X.Min = 0
		}
		if d.logY {
			p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
		} else {
			p.Y.Min = 0
		}
		for _, k := range kinds {
			if len(d.data[k.name]) == 0 {
				continue
			}
			var xy plotter.XYs
			for _, pt := range d.data[k.name] {
				xy = append(xy, plotter.XY{X: pt.x, Y: pt.y})
			}
			line, points, err := plotter.NewLinePoints(xy)
			if err != nil {
				return err
			}
			line.Color, points.Color = colours[k.name], colours[k.name]
			line.Width, points.Radius = vg.Points(1.5), vg.Points(3)
			points.Shape = draw.CircleGlyph{}
			p.Add(line, points)
			p.Legend.Add(k.name, line, points)
		}
		if err := p.Save(16*vg.Centimeter, 10*vg.Centimeter, filepath.Join(dir, d.file)); err != nil {
			return err
		}
	}
	return nil
}

func drawings(cycles, handoffs, memory series) []drawing {
	return []drawing{
		{"throughput.svg", "Uncontended lock cycles, 1 to 64 clients", "cycles per second", "median cycle, ms",
			true, true, cycles},
		{"handoff.svg", "From a release to the next hold", "waiters", "median, ms", true, true, handoffs},
		{"memory.svg", "A server with idle sessions", "sessions", "resident memory, MB", false, false, memory},
	}
}
