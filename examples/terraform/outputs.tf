output "inbox" {
  description = "Name of the bucket that takes files."
  value       = aws_cloudformation_stack.this.outputs["Inbox"]
}

output "results" {
  description = "Name of the bucket with results and receipts."
  value       = aws_cloudformation_stack.this.outputs["Results"]
}

output "token_secret" {
  description = "The secret that needs the token of the flow service."
  value       = aws_cloudformation_stack.this.outputs["TokenSecret"]
}

output "collect_function" {
  description = "Name of the function that flowdrop --function takes."
  value       = aws_cloudformation_stack.this.outputs["CollectFunction"]
}

output "dead_letter_queue" {
  description = "URL of the queue of uploads that could not be started."
  value       = aws_cloudformation_stack.this.outputs["DeadLetterQueue"]
}
