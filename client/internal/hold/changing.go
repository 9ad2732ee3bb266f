package hold

import "context"

// beginChange announces that the nodes of the hold will be replaced; endChange ends the change,
// after h.replace or a failure. In between the nodes of the hold are unknown, so a release and a
// monitor wait. Changes come one after another. beginChange returns false if the hold is over.
func (h *Hold) beginChange() bool {
	for {
		h.mu.Lock()
		former, over := h.changing, h.over
		if !over && former == nil {
			h.changing = make(chan struct{})
		}
		h.mu.Unlock()
		if over || former == nil {
			return !over
		}
		<-former
	}
}

func (h *Hold) endChange() {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.changing)
	h.changing = nil
}

func (h *Hold) awaitChange(ctx context.Context) {
	h.mu.Lock()
	ch := h.changing
	h.mu.Unlock()
	if ch == nil {
		return
	}
	select {
	case <-ch:
	case <-ctx.Done():
	}
}
