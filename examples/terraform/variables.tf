variable "assembly" {
  description = "The folder that npm run -s synth wrote: cdk.out."
  type        = string
}

variable "stack" {
  description = "Name of the stack in that folder: flowdrop, or flowdrop-<stage>."
  type        = string
  default     = "flowdrop"
}

variable "account" {
  description = "Number of the AWS account."
  type        = string

  validation {
    condition     = can(regex("^[0-9]{12}$", var.account))
    error_message = "An account has 12 digits. Write it in quotes, lest a zero at its beginning be lost."
  }
}

variable "region" {
  description = "Region of the stack."
  type        = string
}

variable "tags" {
  description = "Tags of the stack and of its resources."
  type        = map(string)
  default     = {}
}
