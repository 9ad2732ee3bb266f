package recipe

import "math"

// Likeness reads names that differ from the own name only in id and number. In a long queue these are nearly
// all names, and the pass over them is the main cost of a turn.
type Likeness struct {
	own  Contender
	tail string // the text between id and number
}

const (
	idBegins = len("_c_")
	idEnds   = idBegins + 36
)

func LikenessOf(own Contender) *Likeness {
	if own.Maker != MakerSelf || len(own.Name) < idEnds+10 || own.Name[:idBegins] != "_c_" {
		return &Likeness{}
	}
	if seq, ok := ParseSeq(own.Name[len(own.Name)-10:]); !ok || seq != own.Seq {
		return &Likeness{} // the number has a sign
	}
	return &Likeness{own: own, tail: own.Name[idEnds : len(own.Name)-10]}
}

func (l *Likeness) Read(name string) (Contender, bool) {
	end := len(name) - 10
	if l.tail == "" || len(name) != len(l.own.Name) || name[idEnds:end] != l.tail || name[:idBegins] != "_c_" ||
		!isSelfUUID(name[idBegins:idEnds]) {
		return Contender{}, false
	}
	n := uint64(0)
	for _, digit := range []byte(name[end:]) {
		if digit -= '0'; digit > 9 {
			return Contender{}, false
		}
		n = n*10 + uint64(digit)
	}
	return Contender{Name: name, Maker: MakerSelf, Kind: l.own.Kind, Seq: int32(n)}, n <= math.MaxInt32
}
