package tickets

// Confirmed returns the number of tickets for which the server knows when the leader has surely heard of
// them.
func (s *Server) Confirmed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.confirmed)
}
