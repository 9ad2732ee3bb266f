package tickets

// Confirmed returns how many tickets have a time at which the leader had surely heard of them.
func (s *Server) Confirmed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.confirmed)
}
