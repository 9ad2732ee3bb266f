package tickets

// Confirmed returns for how many tickets the server knows a time at which the leader had surely heard of
// them.
func (s *Server) Confirmed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.confirmed)
}
